package fs

import (
	"fmt"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/zeebo/xxh3"
)

// Inode numbers of files that always exist. Views take theirs from firstViewIno on, go-fuse numbers
// scratch files from automaticIno on, and files below epoch-N have numbers from namedIno on that
// are computed from the name: programs (including lsiofs, if its dataset is on a mount) recognize a
// replaced file by its number, but the kernel forgets names, and their numbers, when it is short of
// memory.
const (
	inoREADME = iota + 2
	inoDataset
	inoStatus
	inoStatusJSON
	inoMetrics
	firstViewIno = 1 << 10
	automaticIno = 1 << 48
	namedIno     = 1 << 62 // to 1<<63 - 1: many programs treat them as signed
)

// named is the identity of a node that is a pure function of its path below the mount point. Two
// nodes with the same number (one pair in 2⁶²) are still different nodes, by their generations.
func (t *tree) named(mode uint32, path string) fusefs.StableAttr {
	h := xxh3.HashString128(t.content + path)
	return fusefs.StableAttr{Mode: mode, Ino: namedIno | h.Lo&(namedIno-1), Gen: h.Hi}
}

// contentOf identifies everything that decides the bytes below epoch-N, except their path. So
// another dataset, or another order of it, at the same place has other inodes.
func (t *tree) contentOf() string {
	deal := t.spec.Deal
	deal.Workers = 0 // part of the path
	shards := t.fingerprint
	if t.growing != nil {
		shards = "run " + t.run // which records permanently what an epoch consists of
	}
	return fmt.Sprintf("%s %+v %+v\x00", shards, t.spec.Order, deal)
}
