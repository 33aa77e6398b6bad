package fs

import (
	"fmt"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/zeebo/xxh3"
)

// Inode numbers of files that are always there; views take theirs from firstViewIno
// on, go-fuse numbers scratch files from automaticIno on, and what lies below epoch-N
// has numbers from namedIno on, that follow from the name: programs (lsiofs too, where
// a mount is its dataset) tell a file that was replaced by its number, and the kernel
// forgets names, and numbers with them, when it is short of memory.
const (
	inoREADME = iota + 2
	inoDataset
	inoStatus
	inoStatusJSON
	inoMetrics
	firstViewIno = 1 << 10
	automaticIno = 1 << 48
	namedIno     = 1 << 62 // to 1<<63 - 1: many programs take them for signed
)

// named is the identity of a node that is a pure function of its path below the mount
// point. Two with one number (one in 2⁶² pairs) are still two nodes, by their
// generations.
func (t *tree) named(mode uint32, path string) fusefs.StableAttr {
	h := xxh3.HashString128(t.content + path)
	return fusefs.StableAttr{Mode: mode, Ino: namedIno | h.Lo&(namedIno-1), Gen: h.Hi}
}

// contentOf names all that bytes below epoch-N follow from but their path, so that
// another dataset, or another order of it, at the same place has other inodes.
func (t *tree) contentOf() string {
	deal := t.spec.Deal
	deal.Workers = 0 // paths say it
	shards := t.fingerprint
	if t.growing != nil {
		shards = "run " + t.run // which records for ever what an epoch is of
	}
	return fmt.Sprintf("%s %+v %+v\x00", shards, t.spec.Order, deal)
}
