package catalog

import (
	"cmp"
	"slices"
	"strings"
)

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
