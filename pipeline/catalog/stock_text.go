package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Text returns the text of the snapshot of some shards, which Shards has returned, in any order.
// Its SHA-256 is the fingerprint of the dataset of these shards (pipeline/order/STREAMS.md). It
// depends on nothing but the format and shards.
func (s *LiveIndex) Text(shards []LiveShard) ([]byte, error) {
	s.mu.RLock()
	format, known := s.found.Format, s.format >= 0
	s.mu.RUnlock()
	if !known {
		return nil, errors.New("no shard shows the format yet: wait for one, or choose the --format")
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
			return nil, fmt.Errorf("line %d is not one of a shard: %q", t.lines, line)
		}
		if t.last >= x.Path { // no path is empty
			return nil, fmt.Errorf("line %d: %s has to come after %s", t.lines, x.Path, t.last)
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
	errNoText = errors.New("it does not begin as the text of a snapshot does")
	errNoLine = errors.New("a line of the snapshot's text is not one of a shard")
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
