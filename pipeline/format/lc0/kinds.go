package lc0

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// versions is a set of versions of frames, a bit each.
type versions uint32

func (v versions) with(version uint32) versions { return v | 1<<version }

// one reports whether there is exactly one.
func (v versions) one() bool { return v != 0 && v&(v-1) == 0 }

const (
	onePrefix  = "version "
	manyPrefix = "versions "
)

// kind returns the set as the kind of a shard: "version 6", "versions 4, 6", "" for none.
func (v versions) kind() string {
	var numbers []string
	for n := range uint32(32) {
		if v&(1<<n) != 0 {
			numbers = append(numbers, strconv.Itoa(int(n)))
		}
	}
	switch len(numbers) {
	case 0:
		return ""
	case 1:
		return onePrefix + numbers[0]
	}
	return manyPrefix + strings.Join(numbers, ", ")
}

// versionsOf parses what kind returned.
func versionsOf(kind string) (v versions, ok bool) {
	text, ok := strings.CutPrefix(kind, onePrefix)
	if !ok {
		text = strings.TrimPrefix(kind, manyPrefix)
	}
	for number := range strings.SplitSeq(text, ", ") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || frameBytes[uint32(n)] == 0 {
			return 0, false
		}
		v = v.with(uint32(n))
	}
	return v, v.kind() == kind
}

// SameKind reports whether both are of the same, single version. Shards of several versions, which
// only Rows accepts, are never of the same kind, not even as themselves.
func (Format) SameKind(a, b string) bool {
	v, ok := versionsOf(a)
	return ok && v.one() && a == b
}

// OfKind returns f: all versions are read in the same way.
func (f Format) OfKind(kind string) (format.Format, error) {
	if v, ok := versionsOf(kind); !ok || !v.one() {
		return nil, fmt.Errorf("%q is not a version of frames", kind)
	}
	return f, nil
}
