package catalog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// LackingError reports that shards of a snapshot are not known here.
type LackingError struct {
	Paths []string // in dataset order, at least one
	// Reason is why the first one is not known, "" if the live index has no information on it.
	Reason string
}

func (e *LackingError) Error() string {
	if n := len(e.Paths); n > 1 {
		return fmt.Sprintf("%s and %s more are in the snapshot but not here%s: wait until they have been copied; the next open looks for them again",
			e.Paths[0], grouped(uint64(n-1)), e.because())
	}
	return fmt.Sprintf("%s is in the snapshot but not here%s: wait until it has been copied; the next open looks for it again", e.Paths[0], e.because())
}

func (e *LackingError) because() string {
	if e.Reason == "" {
		return ""
	}
	return " (" + e.Reason + ")"
}

// DiffersError reports that a shard of a snapshot differs from the one here. The times in Here and
// There are not compared.
type DiffersError struct {
	Path        string
	Here, There LiveShard
}

func (e *DiffersError) Error() string {
	figures := fmt.Sprintf("%s entry points here, %s", grouped(e.Here.Units), grouped(e.There.Units))
	switch {
	case e.Here.Records != e.There.Records:
		figures = fmt.Sprintf("%s records here, %s", grouped(e.Here.Records), grouped(e.There.Records))
	case e.Here.Bytes != e.There.Bytes:
		figures = fmt.Sprintf("%s decoded bytes here, %s", grouped(e.Here.Bytes), grouped(e.There.Bytes))
	}
	return fmt.Sprintf("%s: %s in the snapshot: it was changed after the snapshot, or is a different copy: restore the snapshot's file, or continue with the next epoch", e.Path, figures)
}

// grouped formats a number with a space between thousands.
func grouped(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// Seal returns the catalog of exactly those shards that a snapshot's text names, in their version
// here; its fingerprint is the text's SHA-256. Remembered shards count as well: reads of files that
// are gone fail later. The caller closes the catalog, which stays valid whatever happens to the
// live index.
//
// The index of each snapshot is a separate file in the index directory. If it already exists, and
// is of these exact files, it is opened unchanged. Others are removed, except for the newest two
// and those in use.
//
// If shards are not known, the error is a *LackingError; if one differs, it is a *DiffersError.
func (s *LiveIndex) Seal(ctx context.Context, text []byte) (c *Catalog, err error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	defer func() { err = s.closedOr(err) }()
	first, lines, err := openText(text)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", &s.target, err)
	}
	if err := s.suits(ctx, first); err != nil {
		return nil, err
	}
	s.journals.Acquire()
	defer s.journals.Release()
	shards, kinds, err := s.find(ctx, lines)
	if err != nil {
		return nil, err
	}
	return s.seal(ctx, text, shards, kinds)
}

// suits compares a text's first line with the live index's format. A live index without a format
// takes that of the text.
func (s *LiveIndex) suits(ctx context.Context, first string) error {
	s.mu.RLock()
	format, known := s.found.Format, s.format >= 0
	s.mu.RUnlock()
	if !known {
		return s.takeTurn(ctx, func() error {
			if s.format >= 0 {
				format = s.found.Format
				return s.differs(first, firstLine(format))
			}
			for i := range s.formats {
				if firstLine(s.formats[i]) == first {
					return s.pin(i, "")
				}
			}
			return s.differs(first, firstLine(s.config.Format))
		})
	}
	return s.differs(first, firstLine(format))
}

func (s *LiveIndex) differs(there, here string) error {
	if there == here {
		return nil
	}
	format := func(line string) string { return strings.TrimSpace(strings.TrimPrefix(line, datasetWords)) }
	return fmt.Errorf("snapshot of %s: its shards have format %s, and those here have format %s: choose the --format, or name the snapshot's dataset",
		&s.target, format(there), format(here))
}

// findAtOnce is how many shards are looked up before the lock is released for other calls.
const findAtOnce = 4096

// find returns the index of the shards of a snapshot, in their order. kinds has the first shard of
// each kind.
func (s *LiveIndex) find(ctx context.Context, lines snapshotText) (shards, kinds []index.Shard, err error) {
	shards = make([]index.Shard, 0, bytes.Count(lines.rest, []byte("\n")))
	want, batch, places := make([]LiveShard, 0, findAtOnce), make([]*known, findAtOnce), make([]index.Place, findAtOnce)
	met := map[uint32]bool{}
	var lacking LackingError
	var differing *DiffersError
	lost := func(k *known) { // by its disk
		s.mu.Lock()
		defer s.mu.Unlock()
		if path := k.shard.Path; s.known[path] == k {
			s.drop(path, k)
		}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if want, err = lines.parse(want[:0]); err != nil {
			return nil, nil, fmt.Errorf("snapshot of %s: %w", &s.target, err)
		}
		if len(want) == 0 {
			break
		}
		s.mu.RLock()
		for i := range want {
			k := s.known[want[i].Path]
			batch[i] = nil
			switch {
			case k != nil && same(&k.shard, &want[i]):
				batch[i], places[i] = k, k.place
				continue
			case k != nil && k.state != remembered && differing == nil:
				differing = &DiffersError{Path: want[i].Path, Here: k.shard, There: want[i]}
			case k == nil || k.state == remembered:
				s.lack(&lacking, want[i].Path)
			}
		}
		s.mu.RUnlock()
		for i, k := range batch[:len(want)] {
			switch {
			case k == nil:
			case !places[i].Whole(k.shard.Path):
				s.config.Log.Error("the index directory lost what was written to it: check its disk, or name another with --index-dir", "dir", s.store.Dir(), "shard", k.shard.Path)
				lost(k)
				lacking.Paths = append(lacking.Paths, k.shard.Path)
			default:
				x := index.Shard{Object: k.object(), Codec: uint32(k.codec), Blob: places[i].Blob()}
				shards = append(shards, x)
				if k.kind != 0 && (!met[k.kind] || k.kind == manyKind) {
					met[k.kind] = true
					kinds = append(kinds, x)
				}
			}
		}
	}
	switch {
	case len(lacking.Paths) > 0:
		return nil, nil, &lacking
	case differing != nil:
		return nil, nil, differing
	}
	return shards, kinds, nil
}

// lack notes a shard that is not known. mu must be held.
func (s *LiveIndex) lack(e *LackingError, path string) {
	if w := s.waiting[path]; w != nil && len(e.Paths) == 0 {
		e.Reason = w.reason
	}
	e.Paths = append(e.Paths, path)
}

// same reports whether both have the same line in a snapshot.
func same(a, b *LiveShard) bool {
	return a.Records == b.Records && a.Bytes == b.Bytes && a.Units == b.Units
}

// seal opens the index of these shards, and creates it if it does not exist.
func (s *LiveIndex) seal(ctx context.Context, text []byte, shards, kinds []index.Shard) (*Catalog, error) {
	s.mu.RLock()
	o := &opening{Config: s.config.Config, access: s.access, found: s.found}
	left := s.verdicts()
	s.mu.RUnlock()
	o.found.Selection = discover.SelectionOf(shardPaths(shards), left)
	if len(shards) > 0 {
		// As for a dataset of these shards alone.
		o.found.StreamExtension = o.found.Unpacker.StreamExtension(discover.Stem(shards[0].Object.Path))
	}
	err := o.refuse(shards, kinds)
	if err != nil {
		return nil, err
	}
	i := s.sealedAlready(text, shards)
	if i == nil {
		i, err = s.store.SealSnapshot(s.target.String(), o.content(shards, func(w io.Writer) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			_, err := w.Write(text)
			return err
		}))
		if err != nil {
			return nil, err
		}
	}
	c, err := o.catalog(i)
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return c, nil
}

func shardPaths(shards []index.Shard) []string {
	paths := make([]string, len(shards))
	for i := range shards {
		paths[i] = shards[i].Object.Path
	}
	return paths
}

// sealedAlready opens the stored index of a snapshot, if it is of these exact files.
func (s *LiveIndex) sealedAlready(text []byte, shards []index.Shard) *index.Image {
	if s.config.Rebuild {
		return nil
	}
	i := s.store.LoadSnapshot(sha256.Sum256(text))
	if i == nil {
		return nil
	}
	holds := i.Shards() == uint64(len(shards)) && i.Format() == s.FormatLine()
	for n := 0; holds && n < len(shards); n++ {
		holds = i.Is(uint64(n), shards[n].Object) && i.Codec(uint64(n)) == shards[n].Codec && bytes.Equal(i.Blob(uint64(n)), shards[n].Blob)
	}
	if !holds {
		_ = i.Close()
		return nil
	}
	return i
}

// Suits returns an error if the text of a snapshot is of shards of another format. A live index
// that has no format yet takes that of the text.
func (s *LiveIndex) Suits(ctx context.Context, text []byte) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	first, _, err := parseSnapshot(text)
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", &s.target, err)
	}
	return s.closedOr(s.suits(ctx, first))
}

// Text returns the text of the snapshot of some shards, which Shards has returned, in any order.
// Its SHA-256 is the fingerprint of the dataset of these shards (pipeline/order/STREAMS.md). It
// depends on nothing but the format and shards.
func (s *LiveIndex) Text(shards []LiveShard) ([]byte, error) {
	s.mu.RLock()
	format, known := s.found.Format, s.format >= 0
	s.mu.RUnlock()
	if !known {
		return nil, errors.New("the format is unknown until the first shard arrives: wait for it, or choose the --format")
	}
	line := firstLine(format)
	size := len(line)
	for i := range shards {
		size += len(shards[i].Path) + 24
	}
	text := append(make([]byte, 0, size), line...)
	for _, i := range byPath(shards) {
		x := &shards[i]
		text = appendLine(text, x.Records, x.Bytes, x.Units, x.Path)
	}
	return text, nil
}

// ShardsOf parses the text of a snapshot and returns its shards, in dataset order, without their
// times. Text that Text could not have written is an error.
func ShardsOf(text []byte) ([]LiveShard, error) {
	_, shards, err := parseSnapshot(text)
	return shards, err
}

// parseSnapshot returns the first line as well.
func parseSnapshot(text []byte) (first string, shards []LiveShard, err error) {
	first, lines, err := openText(text)
	if err != nil {
		return "", nil, err
	}
	shards, err = lines.parse(make([]LiveShard, 0, bytes.Count(lines.rest, []byte("\n"))+1))
	return first, shards, err
}

// snapshotText parses the text of a snapshot, some lines at a time.
type snapshotText struct {
	rest  []byte
	lines int // so far
	last  string
}

// openText also returns the first line, including its newline.
func openText(text []byte) (first string, t snapshotText, err error) {
	line, rest, found := bytes.Cut(text, []byte("\n"))
	if !found || !bytes.HasPrefix(line, []byte(datasetWords)) {
		return "", snapshotText{}, errNoText
	}
	return string(line) + "\n", snapshotText{rest: rest, lines: 1}, nil
}

// parse appends the next shards to a slice, until it is full or there are no more.
func (t *snapshotText) parse(to []LiveShard) ([]LiveShard, error) {
	size := 0
	for n := len(to); n < cap(to) && size < len(t.rest); n++ {
		end := bytes.IndexByte(t.rest[size:], '\n')
		if end < 0 {
			end = len(t.rest) - size - 1
		}
		size += end + 1
	}
	rest := string(t.rest[:size]) // the paths are substrings of it
	t.rest = t.rest[size:]
	for rest != "" {
		t.lines++
		line, after, found := strings.Cut(rest, "\n")
		x, ok := parseShard(line)
		if !found || !ok {
			return nil, fmt.Errorf("line %d does not describe a shard: %q", t.lines, line)
		}
		if t.last >= x.Path { // no path is empty
			return nil, fmt.Errorf("line %d: %s must come after %s", t.lines, x.Path, t.last)
		}
		to, rest, t.last = append(to, x), after, x.Path
	}
	return to, nil
}

// parseShard parses a line as appendLine writes it, and no other.
func parseShard(line string) (x LiveShard, ok bool) {
	ok = true
	for _, field := range []*uint64{&x.Records, &x.Bytes, &x.Units} {
		digits, rest, found := strings.Cut(line, " ")
		var err error
		if *field, err = strconv.ParseUint(digits, 10, 63); err != nil || !found || digits[0] == '0' && len(digits) > 1 {
			ok = false
		}
		line = rest
	}
	x.Path = line
	return x, ok && line != ""
}

// News is the difference between one set of shards and an earlier one.
type News struct {
	NewShards, NewRecords, NewUnits, GoneShards uint64
}

// NewsOf compares the texts of two snapshots and returns what now has that before has not. Two
// shards are the same if their lines are. before may be nil, for none. A text that Text could not
// have written is an error, as far as that is noticed in passing.
func NewsOf(before, now []byte) (n News, err error) {
	was, is := linesIn(before), linesIn(now)
	was.next()
	same := uint64(0)
	for is.next() {
		for was.more && bytes.Compare(was.path, is.path) < 0 {
			was.next()
		}
		if was.more && bytes.Equal(was.line, is.line) {
			same++
			continue
		}
		x, ok := parseShard(string(is.line))
		if !ok {
			is.bad = true
			break
		}
		n.NewShards++
		n.NewRecords += x.Records
		n.NewUnits += x.Units
	}
	for was.more {
		was.next()
	}
	if was.bad || is.bad {
		return News{}, errNoLine
	}
	n.GoneShards = was.lines - same
	return n, nil
}

var (
	errNoText = errors.New("it does not begin like the text of a snapshot")
	errNoLine = errors.New("a line of the snapshot's text does not describe a shard")
)

// textLines iterates over the lines of a text that are shards.
type textLines struct {
	rest       []byte
	line, path []byte // of the shard; line does not include the newline
	lines      uint64 // so far
	more, bad  bool   // there is a line; the text is not that of a snapshot
}

func linesIn(text []byte) textLines {
	_, rest, found := bytes.Cut(text, []byte("\n"))
	return textLines{rest: rest, bad: !found && len(text) > 0}
}

// next advances to the next line, and reports whether there is one.
func (l *textLines) next() bool {
	if l.more = len(l.rest) > 0 && !l.bad; !l.more {
		return false
	}
	line, rest, found := bytes.Cut(l.rest, []byte("\n"))
	path := line
	for range 3 { // the numbers come before it
		_, path, found = cutSpace(path, found)
	}
	if !found || len(path) == 0 || l.lines > 0 && bytes.Compare(l.path, path) >= 0 {
		l.bad, l.more = true, false
		return false
	}
	l.line, l.path, l.rest = line, path, rest
	l.lines++
	return true
}

func cutSpace(b []byte, wanted bool) (before, after []byte, found bool) {
	before, after, found = bytes.Cut(b, []byte(" "))
	return before, after, found && wanted
}

// LiveShard is a shard of a LiveIndex, with what snapshots and windows depend on.
type LiveShard struct {
	Path                  string // relative to the dataset's root
	ModTimeNanos          int64
	Records, Units, Bytes uint64 // Units are runs of records from one entry point to the next; Bytes are decoded
}

// byPath returns the indices of shards in dataset order, which is the byte order of their paths.
// Paths start alike in most datasets, so the bytes after the common prefix are compared first.
func byPath(shards []LiveShard) []uint32 {
	type numbered struct {
		first  uint64 // bytes after the common prefix
		number uint32
	}
	list := make([]numbered, len(shards))
	common := commonBytes(shards)
	for i := range shards {
		list[i].number = uint32(i)
		rest := shards[i].Path[common:]
		for k := range min(8, len(rest)) {
			list[i].first |= uint64(rest[k]) << (56 - 8*k)
		}
	}
	slices.SortFunc(list, func(a, b numbered) int {
		if a.first != b.first {
			return cmp.Compare(a.first, b.first)
		}
		return strings.Compare(shards[a.number].Path, shards[b.number].Path)
	})
	order := make([]uint32, len(list))
	for i := range list {
		order[i] = list[i].number
	}
	return order
}

// commonBytes returns the length of the common prefix of all paths.
func commonBytes(shards []LiveShard) (n int) {
	if len(shards) == 0 {
		return 0
	}
	first := shards[0].Path
	n = len(first)
	for i := range shards {
		path := shards[i].Path
		n = min(n, len(path))
		for path[:n] != first[:n] {
			n--
		}
	}
	return n
}
