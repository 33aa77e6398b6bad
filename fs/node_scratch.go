package fs

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// Bounds on what clients may leave in the memory of a mount.
const (
	scratchFilesMax = 16
	// roomBytes is for scratch files and drafts of the control file together.
	roomBytes = checkpoint.MaxBytes
)

// scratchFiles are the files in memory that programs create in the root, to rename them onto the
// control file. The zero value is empty.
type scratchFiles struct {
	mu     sync.Mutex
	byName map[string]*scratchNode
	taken  int64 // of roomBytes
}

// take takes n bytes of the room, or returns errNoSpace.
func (s *scratchFiles) take(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken+n > roomBytes {
		return errNoSpace
	}
	s.taken += n
	return nil
}

func (s *scratchFiles) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}

func (s *scratchFiles) get(name string) *scratchNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// add gives n a name that must be unused.
func (s *scratchFiles) add(name string, n *scratchNode) syscall.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byName[name] != nil:
		return errnoExists
	case len(s.byName) >= scratchFilesMax:
		return errnoNoSpace
	case s.byName == nil:
		s.byName = make(map[string]*scratchNode)
	}
	s.byName[name] = n
	return ok
}

// remove removes a name; nil if it did not exist.
func (s *scratchFiles) remove(name string) *scratchNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byName[name]
	delete(s.byName, name)
	return n
}

// rename moves a file, and returns the one that it replaces, if any.
func (s *scratchFiles) rename(from, to string) (replaced *scratchNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.byName[from]
	if n == nil || from == to {
		return nil
	}
	replaced = s.byName[to]
	delete(s.byName, from)
	s.byName[to] = n
	return replaced
}

func (s *scratchFiles) list() []fuse.DirEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]fuse.DirEntry, 0, len(s.byName))
	for name, n := range s.byName {
		entries = append(entries, fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: n.StableAttr().Ino})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name < entries[j].Name })
	return entries
}

// names returns the names of the files, sorted.
func (s *scratchFiles) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byName))
}

// scratchNode is one of these files. Its bytes are counted until it has neither a name nor an
// opening.
type scratchNode struct {
	fusefs.Inode
	t *tree

	mu     sync.Mutex
	data   []byte
	mode   uint32
	mtime  time.Time
	opens  int
	linked bool
}

// resize makes the data n bytes long. The caller must hold mu.
func (n *scratchNode) resize(size int64) syscall.Errno {
	if size > checkpoint.MaxBytes {
		return errnoTooLarge
	}
	more := size - int64(len(n.data))
	if more > 0 {
		if err := n.t.scratch.take(more); err != nil {
			return restoreErrno(err)
		}
		n.data = append(n.data, make([]byte, more)...)
		return ok
	}
	// A copy, so that the bytes that are given back are really free.
	n.data = slices.Clone(n.data[:size])
	n.t.scratch.give(-more)
	return ok
}

// unlink removes the name.
func (n *scratchNode) unlink() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linked = false
	n.drop()
}

// drop frees the data of a file that can't be reached any more. The caller must hold mu.
func (n *scratchNode) drop() {
	if !n.linked && n.opens == 0 {
		n.t.scratch.give(int64(len(n.data)))
		n.data = nil
	}
}

// bytes returns a copy of the data.
func (n *scratchNode) bytes() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.data)
}

func (n *scratchNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return ok
}

func (n *scratchNode) attr(out *fuse.Attr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.t.attr(out, n.mode, int64(len(n.data)), n.mtime)
}

// Setattr stores size, mode and mtime, and accepts the rest without effect.
func (n *scratchNode) Setattr(_ context.Context, _ fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.mu.Lock()
	if size, truncates := in.GetSize(); truncates {
		if size > checkpoint.MaxBytes {
			n.mu.Unlock()
			return errnoTooLarge
		}
		if e := n.resize(int64(size)); e != ok {
			n.mu.Unlock()
			return e
		}
		n.mtime = time.Now()
	}
	if mode, changes := in.GetMode(); changes {
		n.mode = mode & 0o777
	}
	if mtime, changes := in.GetMTime(); changes {
		n.mtime = mtime
	}
	n.mu.Unlock()
	n.attr(&out.Attr)
	return ok
}

func (n *scratchNode) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens++
	return nodeHandle{}, fuse.FOPEN_DIRECT_IO, ok
}

// nodeHandle is an opening without state of its own; go-fuse counts only openings that have a
// handle.
type nodeHandle struct{}

func (n *scratchNode) Read(_ context.Context, _ fusefs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if off >= int64(len(n.data)) {
		return fuse.ReadResultData(nil), ok
	}
	return fuse.ReadResultData(dest[:copy(dest, n.data[off:])]), ok
}

func (n *scratchNode) Write(_ context.Context, _ fusefs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := off + int64(len(data)); end > int64(len(n.data)) {
		if e := n.resize(end); e != ok {
			return 0, e
		}
	}
	copy(n.data[off:], data)
	n.mtime = time.Now()
	return uint32(len(data)), ok
}

func (n *scratchNode) Flush(context.Context, fusefs.FileHandle) syscall.Errno         { return ok }
func (n *scratchNode) Fsync(context.Context, fusefs.FileHandle, uint32) syscall.Errno { return ok }

func (n *scratchNode) Release(context.Context, fusefs.FileHandle) syscall.Errno {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens--
	n.drop()
	return ok
}

func (n *scratchNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	statfs(out)
	return ok
}

// usage returns the number of scratch files, and how much room is taken.
func (s *scratchFiles) usage() (files int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName), s.taken
}
