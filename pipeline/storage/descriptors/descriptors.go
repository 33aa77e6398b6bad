// Package descriptors divides the descriptors that a process may have (RLIMIT_NOFILE, ulimit -n)
// among those that keep many files open. Half of them, or more, are left to FUSE, connections,
// readers, spools and the rest:
//
//	                        Files  Mappings  Cache  Copies  CopyMappings
//	of the limit              1/4       1/4    1/8    1/16          1/16
//	a dataset on a disk         ×         ×                                1/2
//	on a network's, cached      ×              ×       ×             ×     1/2
//	at a service, cached                       ×       ×             ×     1/4
//
// Files of a network's file system are not mapped. The limit is the soft one; the Go runtime
// raises it to the hard one when the process starts.
package descriptors

import "golang.org/x/sys/unix"

// Share is a part of the limit: one of so many.
type Share uint64

const (
	Files        Share = 4  // of a dataset: open for reads
	Mappings     Share = 4  // likewise, mapped
	Cache        Share = 8  // of a cache's objects, two each
	Copies       Share = 16 // of a cache's objects that are read like files of a disk
	CopyMappings Share = 16 // likewise, mapped
)

// Of is how many descriptors that is now, at least least and at most most; most where the
// limit is not known.
func (s Share) Of(least, most int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return s.of(limit.Cur, least, most)
}

func (s Share) of(limit uint64, least, most int) int {
	return max(least, int(min(uint64(most), limit/uint64(s))))
}
