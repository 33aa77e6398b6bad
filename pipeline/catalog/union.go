package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// UnionSource is one dataset of a mixture.
type UnionSource struct {
	Name    string
	Catalog *Catalog
	Weight  uint64 // in millionths, or as shares of bytes
	Records uint64 // T_m: what remains after a split
}

// UnionConfig configures a Union.
type UnionConfig struct {
	Sources  []UnionSource // in the order of the command line
	IndexDir string        // as Config.IndexDir; there is no directory next to the dataset
	Log      *slog.Logger
}

// Union makes one catalog from the catalogs of a mixture's sources, which may be closed afterwards.
// It contains all their shards, under NAME/PATH, with their index unchanged. The index is stored,
// and reused as long as the sources are the same. The fingerprint is the mixture's
// (pipeline/order/STREAMS.md). The caller closes the result.
//
// Sources of several formats or kinds are an error that names two of them.
func Union(c UnionConfig) (*Catalog, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := c.refuseMixed(); err != nil {
		return nil, err
	}
	first := c.Sources[0].Catalog
	formatName := formatLine(first.format)
	roots := make([]string, len(c.Sources))
	for i, s := range c.Sources {
		roots[i] = fmt.Sprintf("%q %q", s.Name, s.Catalog.store.Name())
	}
	store := index.OpenStore(c.IndexDir, "", index.KeyOf("mixture", strings.Join(roots, "\n"), formatName), c.Log)
	shards := c.shards()
	words := formatWords(first.format) + kindWords(first.format, shards)
	lines := func(w io.Writer) error { return c.lines(w, words) }
	image, err := c.stored(store, shards, lines)
	if err != nil {
		b := store.Begin(formatName, nil)
		defer b.Close()
		_, keyed := first.unpacker.(format.Renamer)
		if image, err = b.Seal("the mixture", index.Content{Format: formatName, Keyed: keyed, Shards: shards, Lines: lines}); err != nil {
			return nil, err
		}
	}
	u := &Catalog{
		root: c.root(), format: first.format, unpacker: first.unpacker, extension: first.extension,
		store: store, image: image, coarse: newCoarse(image), union: lines,
	}
	for _, s := range c.Sources {
		u.selection.Add(s.Name, &s.Catalog.selection)
	}
	if err := u.setKind(); err != nil {
		return nil, errors.Join(err, image.Close())
	}
	u.setDamaged()
	return u, nil
}

// root returns a readable list of the sources.
func (c *UnionConfig) root() string {
	names := make([]string, len(c.Sources))
	for i, s := range c.Sources {
		names[i] = s.Name
	}
	return "mixture of " + strings.Join(names, ", ")
}

// refuseMixed refuses sources that can't be combined into one stream.
func (c *UnionConfig) refuseMixed() error {
	a := &c.Sources[0]
	for i := range c.Sources[1:] {
		b := &c.Sources[i+1]
		if x, y := a.Catalog, b.Catalog; formatLine(x.format) != formatLine(y.format) {
			return fmt.Errorf("the sources of a mixture must be of one format: %s has %s, %s has %s", a.Name, formatLine(x.format), b.Name, formatLine(y.format))
		}
		u, ok := a.Catalog.unpacker.(format.Uniform)
		if !ok {
			continue
		}
		if x, y := a.Catalog.kind, b.Catalog.kind; !u.SameKind(x, y) {
			if told := kindsDiffer(u, y, x); told != "" {
				return fmt.Errorf("the sources of a mixture must be of one kind: %s differs from %s: %s", b.Name, a.Name, told)
			}
			from := differAt(x, y)
			return fmt.Errorf("the sources of a mixture must be of one kind: %s has %s, %s has %s", a.Name, kindText(x, from), b.Name, kindText(y, from))
		}
	}
	return nil
}

// shards returns the shards of all sources, in dataset order.
func (c *UnionConfig) shards() (all []index.Shard) {
	sources := slices.Clone(c.Sources)
	sort.Slice(sources, func(i, j int) bool { return sources[i].Name+"/" < sources[j].Name+"/" })
	for _, s := range sources {
		m := s.Catalog.image
		for i := range m.Shards() {
			o := m.Object(i)
			o.Path = s.Name + "/" + o.Path
			all = append(all, index.Shard{Object: o, Codec: m.Codec(i), Blob: m.Blob(i)})
		}
	}
	return all
}

var errNotAsStored = errors.New("the stored index is of a different dataset")

// stored returns the index of an earlier run, if it equals what a new one would be.
func (c *UnionConfig) stored(store *index.Store, shards []index.Shard, lines func(io.Writer) error) (*index.Image, error) {
	m := store.Load()
	if m == nil {
		return nil, errNotAsStored
	}
	same := m.Shards() == uint64(len(shards)) && m.Fingerprint() == index.FingerprintOf(lines)
	for i := 0; same && i < len(shards); i++ {
		n, s := uint64(i), &shards[i]
		same = m.Object(n) == s.Object && m.Codec(n) == s.Codec && bytes.Equal(m.Blob(n), s.Blob)
	}
	if !same {
		_ = m.Close()
		return nil, errNotAsStored
	}
	store.Clean()
	return m, nil
}

// lines writes the text whose SHA-256 is the mixture's fingerprint. words are those of its format.
func (c *UnionConfig) lines(w io.Writer, words string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "lsiofs/1 mixture %s\n", words)
	for _, s := range c.Sources {
		fmt.Fprintf(&b, "%d %d %s %s\n", s.Weight, s.Records, s.Catalog.Fingerprint(), s.Name)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// mixedSource is a parsed line of the text of a mixture's fingerprint.
type mixedSource struct {
	weight, records, fingerprint string
	turn                         int
}

func parseMixture(text []byte) (format string, sources map[string]mixedSource) {
	head, rest, _ := strings.Cut(string(text), "\n")
	format, ok := strings.CutPrefix(head, "lsiofs/1 mixture ")
	if !ok {
		return "", nil
	}
	sources = map[string]mixedSource{}
	for i, line := range strings.Split(strings.TrimSuffix(rest, "\n"), "\n") {
		if p := strings.SplitN(line, " ", 4); len(p) == 4 {
			sources[p[3]] = mixedSource{p[0], p[1], p[2], i}
		}
	}
	return format, sources
}

// mixtureDifferences describes how a mixture differs from what it was.
func mixtureDifferences(was, is []byte, f format.Format) string {
	before, had := parseMixture(was)
	after, has := parseMixture(is)
	switch {
	case had == nil:
		return "that was one dataset, and this is a mixture"
	case before != after:
		return formatsDiffer(before, after, f)
	}
	var words []string
	for name, x := range had {
		y, still := has[name]
		switch {
		case !still:
			words = append(words, "source "+name+" is gone")
		case x.fingerprint != y.fingerprint:
			words = append(words, "source "+name+" is another dataset, or has changed")
		case x.records != y.records:
			words = append(words, fmt.Sprintf("source %s has %s records, and had %s", name, y.records, x.records))
		case x.weight != y.weight:
			words = append(words, fmt.Sprintf("source %s has the weight %s, and had %s (in millionths)", name, y.weight, x.weight))
		case x.turn != y.turn:
			words = append(words, "source "+name+" is named at another place")
		}
	}
	for name := range has {
		if _, was := had[name]; !was {
			words = append(words, "source "+name+" is new")
		}
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
