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

// An epoch of a growing dataset starts for all nodes and permanently, so merely looking at it must
// not start it: neither stat, nor a shell that completes a name, nor a user whose reads don't
// count. But the kernel looks up a name before it opens it, and can't open what was not found. So
// while the next epoch could start, its names lead to stand-ins:
//
//	stat   finds an empty file, or a directory, which is not cached
//	open   starts the epoch, and answers ESTALE: the kernel looks the path up once more,
//	       finds the file itself, and opens that
//
// Before the epoch could start, and for users whose reads don't count, there are no names.

// unbegunFile stands in for a file of the next epoch.
type unbegunFile struct {
	readOnly
	t     *tree
	epoch uint64
	path  string // below the mount point
}

// unbegunDir stands in for from-M of the next epoch. It is not known yet whether the epoch will
// have that many records.
type unbegunDir struct {
	readOnlyDir
	of    *epochNode
	below string
}

// lookupUnbegun finds the stand-ins of an epoch that has not started. begun reports whether it has
// meanwhile.
func (n *epochNode) lookupUnbegun(ctx context.Context, name string, out *fuse.EntryOut) (child *fusefs.Inode, errno syscall.Errno, begun bool) {
	if _, isNumber := parsePrefixed(name, prefixFrom); isNumber && !n.isFrom {
		if begun, errno = n.t.couldBegin(ctx, n.epoch, n.below+"/"+name); begun || errno != ok {
			return nil, errno, begun
		}
		dir := &unbegunDir{of: n, below: n.below + "/" + name}
		n.t.dirAttr(&out.Attr, 0o555, n.t.started)
		return n.t.standIn(ctx, n.EmbeddedInode(), name, dir, n.t.named(syscall.S_IFDIR, dir.below)), ok, false
	}
	return n.t.lookupUnbegunFile(ctx, n.EmbeddedInode(), n, name, n.below, out)
}

// lookupUnbegunFile finds a file's stand-in in parent, whose path is below. of is the epoch's
// directory.
func (t *tree) lookupUnbegunFile(ctx context.Context, parent *fusefs.Inode, of *epochNode, name, below string, out *fuse.EntryOut) (child *fusefs.Inode, errno syscall.Errno, begun bool) {
	inFrom := below != of.below
	if f, isWorker := t.fileOf(name); !(isWorker && f.of != 0 || name == nameDataset && !inFrom || name == nameCheckpoint && inFrom) {
		return nil, errnoNoEntry, false
	}
	file := &unbegunFile{t: t, epoch: of.epoch, path: below + "/" + name}
	if begun, errno = t.couldBegin(ctx, of.epoch, file.path); begun || errno != ok {
		return nil, errno, begun
	}
	file.attr(&out.Attr)
	return t.standIn(ctx, parent, name, file, t.named(syscall.S_IFREG, file.path)), ok, false
}

// standIn returns the node that stands in for another one. It has the same inode number, so that
// programs that compare the numbers before and after opening a file (cp does) see no change.
func (t *tree) standIn(ctx context.Context, parent *fusefs.Inode, name string, node fusefs.InodeEmbedder, as fusefs.StableAttr) *fusefs.Inode {
	if child := parent.GetChild(name); child != nil {
		switch child.Operations().(type) {
		case *unbegunFile, *unbegunDir:
			return child
		}
	}
	as.Gen = ^as.Gen
	t.lookups.add(parent, name)
	return parent.NewInode(ctx, node, as)
}

// couldBegin reports whether an epoch has started by now. If it has not, and can't be started now
// or not by this user, it returns an errno.
func (t *tree) couldBegin(ctx context.Context, epoch uint64, path string) (begun bool, errno syscall.Errno) {
	if c, fromClient := ctx.(*fuse.Context); fromClient && !t.readers.counts(c.Uid) {
		return false, errnoNoEntry
	}
	p := t.patient(ctx, nil)
	defer p.finish()
	if err := t.growing.CanTake(p, epoch); err != nil {
		return false, t.problems.errno(path, err)
	}
	return t.taken(epoch), ok
}

func (n *unbegunFile) attr(out *fuse.Attr) { n.t.attr(out, 0o444, 0, n.t.started) }

func (n *unbegunFile) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return ok
}

// Open starts the epoch, and makes the kernel look up the file itself.
func (n *unbegunFile) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	if begun, errno := n.t.couldBegin(ctx, n.epoch, n.path); errno != ok {
		return nil, 0, errno
	} else if !begun {
		p := n.t.patient(ctx, nil)
		defer p.finish()
		if _, err := n.t.fingerprintOf(p, n.epoch); err != nil {
			return nil, 0, n.t.problems.errno(n.path, err)
		}
	}
	return nil, 0, n.t.problems.errno(n.path, errStale)
}

func (n *unbegunDir) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.of.t.dirAttr(&out.Attr, 0o555, n.of.t.started)
	return ok
}

// Lookup finds stand-ins. Once the epoch has started, the kernel must look up the directory itself.
func (n *unbegunDir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	t := n.of.t
	if !t.taken(n.of.epoch) {
		if child, errno, begun := t.lookupUnbegunFile(ctx, n.EmbeddedInode(), n.of, name, n.below, out); !begun {
			return child, errno
		}
	}
	return nil, t.problems.errno(n.below, errStale)
}

// Readdir lists nothing, as in epoch-N.
func (*unbegunDir) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) { return &listing{}, ok }
