package catalog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// historyKept is how many fingerprints of a dataset are remembered.
	historyKept = 4
	// historyBytes bounds the lines that are read back: those of some ten
	// million shards.
	historyBytes = 1 << 30
	// explained is how many shards Explain names.
	explained = 5
)

// remember keeps the lines behind a fingerprint, for Explain. It is a help, no
// more, so that it failed is only logged.
func (s *store) remember(f spec.Format, shards []packed, fingerprint [32]byte) {
	name := hex.EncodeToString(fingerprint[:]) + ".gz"
	if err := s.writeLines(name, f, shards); err != nil {
		s.log.Warn("the dataset's lines are not kept: a later run can't tell how the dataset has changed", "dir", s.dir, "error", err)
		return
	}
	s.forget(".gz", historyKept)
}

func (s *store) writeLines(name string, f spec.Format, shards []packed) error {
	file, err := s.create("tmp")
	if err != nil {
		return err
	}
	defer file.Close()
	z, err := gzip.NewWriterLevel(file, gzip.BestSpeed)
	if err == nil {
		err = datasetLines(z, f, shards)
	}
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = s.publish(file, name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// forget removes all but the newest of the dataset's files with an ending. Those
// of the future were written when the clock was wrong: they count as the oldest,
// or else nothing that is written from now on would be kept.
func (s *store) forget(ending string, kept int) {
	paths := s.files(s.name+".", ending)
	type aged struct {
		path string
		time time.Time
	}
	var list []aged
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			continue
		}
		a := aged{p, info.ModTime()}
		if a.time.After(time.Now()) {
			a.time = time.Time{}
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b aged) int { return b.time.Compare(a.time) })
	for _, a := range list[min(len(list), kept):] {
		_ = os.Remove(a.path)
	}
}

// recall gives the lines behind a fingerprint, of any dataset of the index
// directory, or nil. What does not hash to the fingerprint is not believed.
func (s *store) recall(fingerprint string) []byte {
	want, err := hex.DecodeString(fingerprint)
	if err != nil || len(want) != sha256.Size || s.dir == "" {
		return nil
	}
	paths := s.files("", "."+hex.EncodeToString(want)+".gz")
	for _, p := range paths {
		if lines := s.readLines(p); lines != nil {
			if sum := sha256.Sum256(lines); bytes.Equal(sum[:], want) {
				return lines
			}
		}
	}
	return nil
}

func (s *store) readLines(path string) []byte {
	f, err := s.openStored(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	lines, err := io.ReadAll(io.LimitReader(z, historyBytes))
	if err != nil {
		return nil
	}
	return lines
}

// Explain says in words in which shards the dataset differs from the one with
// that fingerprint, as far as an index of that is remembered; "" when not.
func (c *Catalog) Explain(fingerprint string) string {
	lines := c.store.recall(fingerprint)
	if lines == nil {
		return ""
	}
	var now bytes.Buffer
	shards := make([]packed, c.Shards())
	for i := range shards {
		shards[i] = packed{object: c.image.object(uint64(i)), blob: c.image.blob(uint64(i))}
	}
	_ = datasetLines(&now, c.format, shards) // a buffer gives no errors
	return differences(parseLines(lines), parseLines(now.Bytes()))
}

// describedDataset is the text behind a fingerprint, taken apart.
type describedDataset struct {
	format string
	shards map[string]describedShard
}

type describedShard struct{ records, bytes, entries string }

func parseLines(text []byte) describedDataset {
	d := describedDataset{shards: map[string]describedShard{}}
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if d.format == "" {
			d.format = strings.TrimPrefix(s.Text(), "lsiofs/1 dataset ")
			continue
		}
		if p := strings.SplitN(s.Text(), " ", 4); len(p) == 4 {
			d.shards[p[3]] = describedShard{p[0], p[1], p[2]}
		}
	}
	return d
}

// differences tells what was and what is.
func differences(was, is describedDataset) string {
	if was.format != is.format {
		return fmt.Sprintf("its format is %s, and was %s", is.format, was.format)
	}
	all := map[string]bool{}
	for path := range was.shards {
		all[path] = true
	}
	for path := range is.shards {
		all[path] = true
	}
	var words []string
	for path := range all {
		before, had := was.shards[path]
		after, has := is.shards[path]
		switch {
		case before == after && had == has:
		case !has:
			words = append(words, path+" is gone")
		case !had:
			words = append(words, path+" is new")
		default:
			words = append(words, path+" "+change(before, after))
		}
	}
	if len(words) == 0 {
		return "it is the same dataset"
	}
	slices.Sort(words)
	n := len(words)
	if n > explained {
		words = append(words[:explained], fmt.Sprintf("and %d more", n-explained))
	}
	return fmt.Sprintf("%d of %d shards differ: %s", n, len(all), strings.Join(words, ", "))
}

func change(before, after describedShard) string {
	switch {
	case before.records != after.records:
		return fmt.Sprintf("has %s records, and had %s", after.records, before.records)
	case before.bytes != after.bytes:
		return fmt.Sprintf("has %s bytes, and had %s", after.bytes, before.bytes)
	}
	return fmt.Sprintf("can be entered at %s records, and could at %s", after.entries, before.entries)
}
