package fs

import (
	"context"
	"errors"
	"math"
	"strconv"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// rootNode is the mount's root directory.
type rootNode struct {
	readOnlyDir
	t *tree
}

func (n *rootNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.t.dirAttr(&out.Attr, 0o755, n.t.started)
	return ok
}

func (n *rootNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	switch name {
	case nameCheckpoint:
		if n.t.hidden.isHidden(ctx) {
			return nil, errnoNoEntry
		}
		return n.control(ctx, out), ok
	case nameREADME:
		return n.about(ctx, out), ok
	case nameDataset:
		return n.describe(ctx, out)
	case nameStatus:
		return n.live(ctx, out, inoStatus, name, n.t.renderStatus), ok
	case nameStatusJSON:
		return n.live(ctx, out, inoStatusJSON, name, n.t.renderStatusJSON), ok
	case nameMetrics:
		return n.live(ctx, out, inoMetrics, name, n.t.renderMetrics), ok
	}
	if epoch, isEpoch := parsePrefixed(name, prefixEpoch); isEpoch {
		if !n.t.hasEpoch(epoch) {
			return nil, errnoNoEntry
		}
		child := n.GetChild(name)
		if child == nil {
			child = n.NewInode(ctx, n.t.newEpochNode(epoch), n.t.named(syscall.S_IFDIR, name))
			n.t.lookups.add(n.EmbeddedInode(), name)
		}
		n.t.dirAttr(&out.Attr, 0o555, n.t.started)
		constant(out)
		return child, ok
	}
	if name == nameCoords && n.t.cubes != nil {
		child := n.GetChild(name)
		if child == nil {
			child = n.NewInode(ctx, n.t.coordsOf(), n.t.named(syscall.S_IFDIR, name))
			n.t.lookups.add(n.EmbeddedInode(), name)
		}
		n.t.dirAttr(&out.Attr, 0o555, n.t.started)
		constant(out)
		return child, ok
	}
	if f, isFile := n.t.fileOf(name); isFile && f.of == 0 {
		return n.worker(ctx, out, name, f)
	}
	if s := n.t.scratch.get(name); s != nil {
		s.attr(&out.Attr)
		return s.EmbeddedInode(), ok
	}
	return nil, errnoNoEntry
}

// control returns the control file of the current view.
func (n *rootNode) control(ctx context.Context, out *fuse.EntryOut) *fusefs.Inode {
	v := n.t.view.Load()
	c := &controlNode{t: n.t, sizeBytes: v.documentBytes, moved: func() time.Time { return time.Unix(0, n.t.view.Load().moved.Load()) }}
	c.attr(&out.Attr)
	return n.NewInode(ctx, c, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.controlIno()})
}

// worker returns a file of the current view.
func (n *rootNode) worker(ctx context.Context, out *fuse.EntryOut, name string, f fileName) (*fusefs.Inode, syscall.Errno) {
	p := n.t.patient(ctx, nil)
	defer p.finish()
	for {
		v := n.t.view.Load()
		if f.worker >= v.workers {
			return nil, errnoNoEntry
		}
		s := &streamNode{t: n.t, name: f, path: name, view: v.number}
		err := s.measure(p)
		if errors.Is(err, errStale) {
			continue // restored in between: use the new view
		}
		if err != nil {
			return nil, n.t.problems.errno(name, err)
		}
		n.t.streamAttr(&out.Attr, s.sizeBytes, s.mtime)
		return n.NewInode(ctx, s, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.ino(f.worker, f.kind)}), ok
	}
}

func (n *rootNode) fixed(ctx context.Context, out *fuse.EntryOut, ino uint64, text []byte) *fusefs.Inode {
	f := &fixedNode{t: n.t, text: text}
	f.attr(&out.Attr)
	constant(out)
	return n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: ino})
}

// about returns README. For a growing dataset it is that of the current epoch.
func (n *rootNode) about(ctx context.Context, out *fuse.EntryOut) *fusefs.Inode {
	v := n.t.view.Load()
	if n.t.growing == nil {
		return n.fixed(ctx, out, inoREADME, n.t.readme)
	}
	f := &fixedNode{t: n.t, text: v.readme}
	f.attr(&out.Attr)
	return n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.readmeIno})
}

// Readdir lists the current epoch and the next; all others can be looked up by name. For a growing
// dataset the next one is not listed: programs that read all that is listed would start it.
func (n *rootNode) Readdir(ctx context.Context) (fusefs.DirStream, syscall.Errno) {
	v := n.t.view.Load()
	file := func(name string, ino uint64) fuse.DirEntry {
		return fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: ino}
	}
	own := []fuse.DirEntry{
		file(nameREADME, v.readmeIno), file(nameDataset, v.descriptionIno()), file(nameStatus, inoStatus),
		file(nameStatusJSON, inoStatusJSON), file(nameMetrics, inoMetrics),
	}
	if !n.t.hidden.isHidden(ctx) {
		own = append(own, file(nameCheckpoint, v.controlIno()))
	}
	if n.t.cubes != nil {
		own = append(own, fuse.DirEntry{Name: nameCoords, Mode: syscall.S_IFDIR, Ino: n.t.named(syscall.S_IFDIR, nameCoords).Ino})
	}
	own = append(own, n.t.scratch.list()...)
	epochs := []uint64{v.position.Epoch, v.position.Epoch + 1}
	if v.position.Epoch == math.MaxUint64 || n.t.growing != nil {
		epochs = epochs[:1]
	}
	for _, e := range epochs {
		name := prefixEpoch + strconv.FormatUint(e, 10)
		own = append(own, fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: n.t.named(syscall.S_IFDIR, name).Ino})
	}
	return &listing{own: own, files: v.workers, kinds: n.t.kinds, next: func(w uint64, k stream.Kind) fuse.DirEntry {
		return file(fileName{worker: w, kind: k}.format(n.t.ext), v.ino(w, k))
	}}, ok
}

// Create makes a scratch file, or makes the control file visible again.
func (n *rootNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	if name == nameCheckpoint {
		h, err := n.t.newControlHandle(ctx, flags)
		if err != nil {
			return nil, nil, 0, n.t.problems.errno(name, err)
		}
		if h.writes {
			h.truncate(0) // it is created again
		}
		n.t.hidden.show()
		return n.control(ctx, out), h, fuse.FOPEN_DIRECT_IO, ok
	}
	if !scratchAllowed(name) {
		return nil, nil, 0, errnoReadOnly
	}
	s, e := n.newScratch(ctx, name, mode, nil)
	if e != ok {
		return nil, nil, 0, e
	}
	s.mu.Lock()
	s.opens++
	s.mu.Unlock()
	s.attr(&out.Attr)
	return s.EmbeddedInode(), nodeHandle{}, fuse.FOPEN_DIRECT_IO, ok
}

// newScratch makes a scratch file; the caller has taken room for data.
func (n *rootNode) newScratch(ctx context.Context, name string, mode uint32, data []byte) (*scratchNode, syscall.Errno) {
	s := &scratchNode{t: n.t, mode: mode & 0o777, mtime: time.Now(), data: data, linked: true}
	n.NewInode(ctx, s, fusefs.StableAttr{Mode: syscall.S_IFREG})
	return s, n.t.scratch.add(name, s)
}

// Unlink removes a scratch file. The control file's name comes back by itself.
func (n *rootNode) Unlink(ctx context.Context, name string) syscall.Errno {
	if name == nameCheckpoint {
		n.t.hidden.hide(ctx)
		return ok
	}
	s := n.t.scratch.remove(name)
	if s == nil {
		return errnoReadOnly
	}
	s.unlink()
	return ok
}

// Rename onto the control file restores: then the scratch file is gone.
func (n *rootNode) Rename(ctx context.Context, name string, newParent fusefs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags&^unix.RENAME_NOREPLACE != 0 {
		return errnoInvalid // exchanging, whiteouts
	}
	if _, inRoot := newParent.(*rootNode); !inRoot {
		return errnoReadOnly
	}
	if name == nameCheckpoint {
		return n.renameControl(ctx, newName)
	}
	s := n.t.scratch.get(name)
	if s == nil {
		return errnoReadOnly
	}
	if newName == nameCheckpoint {
		if flags&unix.RENAME_NOREPLACE != 0 && !n.t.hidden.isHidden(ctx) {
			return errnoExists
		}
		return n.commitScratch(ctx, name, s)
	}
	if !scratchAllowed(newName) {
		return errnoReadOnly
	}
	if flags&unix.RENAME_NOREPLACE != 0 && n.t.scratch.get(newName) != nil {
		return errnoExists
	}
	if replaced := n.t.scratch.rename(name, newName); replaced != nil {
		replaced.unlink()
	}
	return ok
}

func (n *rootNode) commitScratch(ctx context.Context, name string, s *scratchNode) syscall.Errno {
	p := n.t.patient(ctx, nil)
	defer p.finish()
	if err := n.t.restore(p, s.bytes()); err != nil {
		return renameErrno(err)
	}
	n.t.hidden.show()
	if n.t.scratch.remove(name) != nil {
		s.unlink()
	}
	return ok
}

// renameControl serves editors that keep the old file as a backup: the current document becomes a
// scratch file, and the name is gone for a while.
func (n *rootNode) renameControl(ctx context.Context, newName string) syscall.Errno {
	if newName == nameCheckpoint {
		return ok
	}
	if !scratchAllowed(newName) {
		return errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	doc, err := n.t.snapshot(p, n.t.view.Load())
	if err != nil {
		return n.t.problems.errno(nameCheckpoint, err)
	}
	if err := n.t.scratch.take(int64(len(doc))); err != nil {
		return restoreErrno(err)
	}
	if replaced := n.t.scratch.remove(newName); replaced != nil {
		replaced.unlink()
	}
	if _, e := n.newScratch(ctx, newName, 0o644, doc); e != ok {
		n.t.scratch.give(int64(len(doc)))
		return e
	}
	n.t.hidden.hide(ctx)
	return ok
}

// Statfs shows the room for scratch files.
func (n *rootNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	statfs(out)
	return ok
}

// A draft and a scratch file can hold every document.
var _ [roomBytes - checkpoint.MaxBytes]struct{}
