package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Sum is a SHA-256.
type Sum [sha256.Size]byte

// Nothing is the sum of no bytes: that of a result without a file, because no unit of the shard was
// kept.
var Nothing = Sum(sha256.Sum256(nil))

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// Entry records what a result was made from.
type Entry struct {
	Source, Filter, Result     Sum // Result is Nothing if there is no file
	UnitsIn, UnitsOut, Records uint64
	Path                       string // of the source below its root, and of the result below its own root
}

const (
	sumDigits = 2 * sha256.Size
	// maxLineBytes bounds a line: a path has at most 4096 bytes, each of which takes up to two.
	maxLineBytes = 16 << 10
)

var (
	escape   = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n")
)

// AppendLine appends the line of an entry, with its newline.
func (e *Entry) AppendLine(dst []byte) []byte {
	return fmt.Appendf(dst, "%s %s %s %d %d %d %s\n", e.Source, e.Filter, e.Result, e.UnitsIn, e.UnitsOut, e.Records, escape.Replace(e.Path))
}

// ParseLine parses a line without its newline. It accepts exactly what AppendLine writes.
func ParseLine(line []byte) (e Entry, err error) {
	fields := bytes.SplitN(line, []byte(" "), 7)
	if len(fields) < 7 {
		return e, fmt.Errorf("%d fields, of 7", len(fields))
	}
	for i, sum := range []*Sum{&e.Source, &e.Filter, &e.Result} {
		if len(fields[i]) != sumDigits {
			return e, fmt.Errorf("field %d is not a SHA-256", i+1)
		}
		if _, err := hex.Decode(sum[:], fields[i]); err != nil {
			return e, fmt.Errorf("field %d is not a SHA-256: %w", i+1, err)
		}
	}
	for i, n := range []*uint64{&e.UnitsIn, &e.UnitsOut, &e.Records} {
		if *n, err = strconv.ParseUint(string(fields[3+i]), 10, 64); err != nil || *n > math.MaxInt64 {
			return e, fmt.Errorf("field %d is not a number", 4+i)
		}
	}
	e.Path = unescape.Replace(string(fields[6]))
	if err := checkPath(e.Path); err != nil {
		return e, err
	}
	again := e.AppendLine(nil)
	if !bytes.Equal(again[:len(again)-1], line) {
		return e, fmt.Errorf("it is not written as lsiofs writes it")
	}
	return e, nil
}

// checkPath returns an error if p is not a clean path below a root.
func checkPath(p string) error {
	if p == "." || p == "" || path.Clean(p) != p || p[0] == '/' || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%q is not a path below a directory", p)
	}
	return nil
}

// removed reports whether the line means that its path no longer has a result.
func (e *Entry) removed() bool {
	none := Sum{}
	return e.Source == none && e.Filter == none && e.Result == none
}

// entries has the entries of each path: the current one last, after those of earlier results, of
// which the newest are kept.
type entries map[string][]Entry

// maxResults is how many results of a path are remembered. All but the last were replaced, or were
// about to be by a process that was killed: with 4, it takes 4 kills in a row to forget the result
// that still exists, and then it is left alone, with a warning.
const maxResults = 4

// add applies a line.
func (m entries) add(e Entry) {
	if e.removed() {
		delete(m, e.Path)
		return
	}
	list := slices.DeleteFunc(m[e.Path], func(old Entry) bool { return old.Result == e.Result })
	list = append(list, e)
	m[e.Path] = list[max(0, len(list)-maxResults):]
}

func (m entries) last(path string) (Entry, bool) {
	list := m[path]
	if len(list) == 0 {
		return Entry{}, false
	}
	return list[len(list)-1], true
}

// lines returns the total number of entries.
func (m entries) lines() (n int) {
	for _, list := range m {
		n += len(list)
	}
	return n
}

// parse parses the lines of a file. wholeBytes is the size of all complete lines: after them may be
// a line that was being written when its writer ended.
func parse(text []byte) (found entries, lines int, wholeBytes int64, err error) {
	found = entries{}
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			break
		}
		lines++
		e, err := ParseLine(text[:end])
		if err == nil && end > maxLineBytes {
			err = fmt.Errorf("%d bytes, of at most %d", end, maxLineBytes)
		}
		if err != nil {
			return nil, 0, 0, fmt.Errorf("line %d: %w", lines, err)
		}
		found.add(e)
		text, wholeBytes = text[end+1:], wholeBytes+int64(end)+1
	}
	return found, lines, wholeBytes, nil
}

// Of reports whether a result was made from that source by that filter.
func (e *Entry) Of(source, filter Sum) bool { return e.Source == source && e.Filter == filter }
