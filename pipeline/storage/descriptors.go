package storage

import "golang.org/x/sys/unix"

// DescriptorShare is a part of the file descriptors that a process may have (RLIMIT_NOFILE, ulimit -n):
// one in this many. They are divided among the parts that keep many files open. At least half of them are left for FUSE,
// connections, readers, spools and everything else:
//
//	                        Files  Mappings  Cache  Copies  CopyMappings
//	of the limit              1/4       1/4    1/8    1/16          1/16
//	a dataset on a disk         ×         ×                                1/2
//	on a network's, cached      ×              ×       ×             ×     1/2
//	at a service, cached                       ×       ×             ×     1/4
//
// Files on network file systems are not mapped. The limit is the soft one; the Go runtime raises it
// to the hard one when the process starts.
type DescriptorShare uint64

const (
	FilesShare        DescriptorShare = 4  // of a dataset: open for reads
	MappingsShare     DescriptorShare = 4  // likewise, mapped
	CacheShare        DescriptorShare = 8  // for a cache's objects, two each
	CopiesShare       DescriptorShare = 16 // for a cache's objects that are read like local files
	CopyMappingsShare DescriptorShare = 16 // likewise, mapped
)

// Of returns the share of the current limit, at least least and at most most; it is most if the
// limit is unknown.
func (s DescriptorShare) Of(least, most int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return s.of(limit.Cur, least, most)
}

func (s DescriptorShare) of(limit uint64, least, most int) int {
	return max(least, int(min(uint64(most), limit/uint64(s))))
}
