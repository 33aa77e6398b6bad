package fs

import (
	"context"
	"strconv"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// epochNode is the directory epoch-N, or epoch-N/from-M.
type epochNode struct {
	readOnlyDir
	t     *tree
	epoch uint64
	from  uint64
	// below is the path below the mount point.
	below string
	// isFrom distinguishes epoch-N/from-0 from epoch-N.
	isFrom bool
}

func (t *tree) newEpochNode(epoch uint64) *epochNode {
	return &epochNode{t: t, epoch: epoch, below: prefixEpoch + strconv.FormatUint(epoch, 10)}
}

func (n *epochNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.t.dirAttr(&out.Attr, 0o555, n.t.started)
	out.SetTimeout(constantTimeout)
	return ok
}

// Lookup finds any worker-w-of-W, and from-M in epoch-N. A name keeps its node as long as the
// kernel knows it, and its inode number forever.
func (n *epochNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !n.t.taken(n.epoch) {
		if child, errno, begun := n.lookupUnbegun(ctx, name, out); !begun {
			return child, errno
		}
	}
	switch {
	case name == nameDataset && n.describes():
		return n.describe(ctx, out)
	case name == nameCheckpoint && n.isFrom:
		return n.position(ctx, out)
	}
	if m, isNumber := parsePrefixed(name, prefixFrom); isNumber && !n.isFrom {
		p := n.t.patient(ctx, nil)
		records, err := n.t.recordsOf(p, n.epoch)
		p.finish()
		if err != nil {
			return nil, n.t.problems.errno(n.below+"/"+name, err)
		}
		s := n.t.subject
		s.Records = records
		taken, possible := s.Samples(m)
		if !possible {
			return nil, errnoNoEntry
		}
		child, known := n.GetChild(name), false
		if child != nil {
			_, known = child.Operations().(*epochNode)
		}
		if !known {
			from := &epochNode{t: n.t, epoch: n.epoch, from: taken, isFrom: true, below: n.below + "/" + name}
			child = n.NewInode(ctx, from, n.t.named(syscall.S_IFDIR, from.below))
			n.t.lookups.add(n.EmbeddedInode(), name)
		}
		n.t.dirAttr(&out.Attr, 0o555, n.t.started)
		constant(out)
		return child, ok
	}
	f, isFile := n.t.fileOf(name)
	if !isFile || f.of == 0 {
		return nil, errnoNoEntry
	}
	child, known := n.GetChild(name), false
	var s *streamNode
	if child != nil {
		s, known = child.Operations().(*streamNode)
	}
	if !known {
		deal := n.t.spec.Deal
		deal.Workers = f.of
		s = &streamNode{t: n.t, name: f, path: n.below + "/" + name, epoch: n.epoch, from: n.from, done: n.t.before(n.from), deal: deal}
		p := n.t.patient(ctx, nil)
		defer p.finish()
		if err := s.measure(p); err != nil {
			return nil, n.t.problems.errno(s.path, err)
		}
		child = n.NewInode(ctx, s, n.t.named(syscall.S_IFREG, s.path))
		n.t.lookups.add(n.EmbeddedInode(), name)
	}
	n.t.streamAttr(&out.Attr, s.sizeBytes, s.mtime)
	constant(out)
	return child, ok
}

// Readdir lists the files for the mount's number of workers; all others can be looked up by name.
// It lists none for an epoch that has not started, so that programs that read all that is listed
// don't start it.
func (n *epochNode) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	if !n.t.taken(n.epoch) {
		return &listing{}, ok
	}
	of := n.t.spec.Deal.Workers
	var own []fuse.DirEntry
	if n.describes() {
		own = append(own, fuse.DirEntry{Mode: syscall.S_IFREG, Name: nameDataset, Ino: n.t.named(syscall.S_IFREG, n.below+"/"+nameDataset).Ino})
	}
	if n.isFrom {
		own = append(own, fuse.DirEntry{Mode: syscall.S_IFREG, Name: nameCheckpoint, Ino: n.t.named(syscall.S_IFREG, n.below+"/"+nameCheckpoint).Ino})
	}
	return &listing{own: own, files: of, kinds: n.t.kinds, next: func(w uint64, k stream.Kind) fuse.DirEntry {
		name := fileName{w, of, k}.format(n.t.ext)
		return fuse.DirEntry{Mode: syscall.S_IFREG, Name: name, Ino: n.t.named(syscall.S_IFREG, n.below+"/"+name).Ino}
	}}, ok
}

// constant sets the timeouts of what never changes.
func constant(out *fuse.EntryOut) {
	out.SetEntryTimeout(constantTimeout)
	out.SetAttrTimeout(constantTimeout)
}

// listing is a directory's entries: a few of its own, then the files of all workers, which are
// created as they are asked for, since there can be 262144.
type listing struct {
	own   []fuse.DirEntry
	files uint64 // number of workers
	kinds []stream.Kind
	next  func(w uint64, k stream.Kind) fuse.DirEntry
	at    uint64
}

func (l *listing) HasNext() bool {
	return l.at < uint64(len(l.own))+l.files*uint64(len(l.kinds))
}

func (l *listing) Next() (fuse.DirEntry, syscall.Errno) {
	i := l.at
	l.at++
	if i < uint64(len(l.own)) {
		return l.own[i], ok
	}
	i -= uint64(len(l.own))
	return l.next(i/uint64(len(l.kinds)), l.kinds[i%uint64(len(l.kinds))]), ok
}

func (l *listing) Close() {}
