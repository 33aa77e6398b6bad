package catalog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/growing"
)

// Text is the text of the snapshot of some shards, which Shards has given, in any order:
// its SHA-256 is the fingerprint of the dataset that they are (ORDER.md). It uses nothing
// but the format and what is in shards.
func (s *Stock) Text(shards []growing.Shard) ([]byte, error) {
	s.mu.RLock()
	format, known := s.found.Format, s.format >= 0
	s.mu.RUnlock()
	if !known {
		return nil, errors.New("there is no shard yet that says what the format is: wait for one, or name the --format")
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

// byPath gives the numbers of shards in dataset order. Paths of one dataset begin alike, so
// those bytes are compared first in which they begin to differ.
func byPath(shards []growing.Shard) []uint32 {
	type numbered struct {
		first  uint64 // bytes behind the common beginning
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

// commonBytes is how many bytes all paths begin with.
func commonBytes(shards []growing.Shard) (n int) {
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

// ShardsOf takes the text of a snapshot apart: its shards, in dataset order, without their
// times. Text that could not have been written by Text is an error.
func ShardsOf(text []byte) ([]growing.Shard, error) {
	_, shards, err := parseSnapshot(text)
	return shards, err
}

// parseSnapshot also gives the first line.
func parseSnapshot(text []byte) (first string, shards []growing.Shard, err error) {
	whole := string(text) // which the paths are parts of
	first, rest, found := strings.Cut(whole, "\n")
	if !found || !strings.HasPrefix(first, datasetWords) {
		return "", nil, errors.New("it does not begin as the text of a snapshot does")
	}
	shards = make([]growing.Shard, 0, bytes.Count(text, []byte("\n"))-1)
	var canonical []byte
	for n := 2; rest != ""; n++ {
		line, after, found := strings.Cut(rest, "\n")
		x, ok := parseShard(line)
		canonical = appendLine(canonical[:0], x.Records, x.Bytes, x.Units, x.Path)
		if !found || !ok || string(canonical[:len(canonical)-1]) != line {
			return "", nil, fmt.Errorf("line %d is no shard's: %q", n, line)
		}
		if k := len(shards); k > 0 && shards[k-1].Path >= x.Path {
			return "", nil, fmt.Errorf("line %d: %s does not come behind %s", n, x.Path, shards[k-1].Path)
		}
		shards, rest = append(shards, x), after
	}
	return first + "\n", shards, nil
}

func parseShard(line string) (x growing.Shard, ok bool) {
	ok = true
	for _, field := range []*uint64{&x.Records, &x.Bytes, &x.Units} {
		digits, rest, found := strings.Cut(line, " ")
		var err error
		if *field, err = strconv.ParseUint(digits, 10, 63); err != nil || !found {
			ok = false
		}
		line = rest
	}
	x.Path = line
	return x, ok && line != ""
}
