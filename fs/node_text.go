package fs

import (
	"context"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// fixedNode is a file whose text never changes: README, dataset.json.
type fixedNode struct {
	readOnly
	t    *tree
	text []byte
}

func (n *fixedNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	out.SetTimeout(constantTimeout)
	return ok
}

func (n *fixedNode) attr(out *fuse.Attr) { n.t.attr(out, 0o444, int64(len(n.text)), n.t.started) }

func (n *fixedNode) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	return textHandle(n.text), streamFlags, ok
}

// liveNode is a file whose text is rendered whenever its name is looked up: status, status.json,
// metrics. So stat and fstat report the size of what is read, and programs that go by the size
// (tar, rsync, mmap, web servers) get all of it.
//
// While the file is open, its text does not change. A look-up of the name meanwhile leads to
// another node with its own text but the same inode number, since programs compare the numbers
// before and after they open a file (cp does).
type liveNode struct {
	readOnly
	t      *tree
	name   string
	render func(context.Context) ([]byte, error)

	mu     sync.Mutex
	text   []byte
	made   time.Time
	opens  int
	looked bool // text is from a look-up, and has not been opened since
}

// live looks up a liveNode.
func (n *rootNode) live(ctx context.Context, out *fuse.EntryOut, ino uint64, name string, render func(context.Context) ([]byte, error)) *fusefs.Inode {
	p := n.t.patient(ctx, nil)
	text, err := render(p)
	p.finish()
	child := n.GetChild(name)
	var f *liveNode
	if child != nil {
		f, _ = child.Operations().(*liveNode)
	}
	if f == nil || !f.renew(text, err == nil) {
		f = &liveNode{t: n.t, name: name, render: render}
		f.renew(text, err == nil)
		child = n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: ino, Gen: n.t.lives.Add(1)})
	}
	f.attr(&out.Attr)
	return child
}

// renew sets the text of n, and returns false while n is open. If the text could not be rendered,
// opening n renders it once more, and returns the error.
func (n *liveNode) renew(text []byte, made bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opens > 0 {
		return false
	}
	n.text, n.made, n.looked = text, time.Now(), made
	return true
}

// opened returns the text for an opening, until closed. A program that opens n without its name (by
// /proc/self/fd) gets a new text, unless n is open.
func (n *liveNode) opened(ctx context.Context) ([]byte, error) {
	n.mu.Lock()
	fresh := n.looked || n.opens > 0
	n.mu.Unlock()
	if !fresh {
		text, err := n.render(ctx)
		if err != nil {
			return nil, err
		}
		n.renew(text, true)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens++
	n.looked = false
	return n.text, nil
}

func (n *liveNode) closed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opens--
}

func (n *liveNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return ok
}

func (n *liveNode) attr(out *fuse.Attr) {
	n.mu.Lock()
	size, made := int64(len(n.text)), n.made
	n.mu.Unlock()
	n.t.attr(out, 0o444, size, made)
}

// Open uses direct_io without KEEP_CACHE: mapped pages of an earlier text do not belong to this
// one.
func (n *liveNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	text, err := n.opened(p)
	if err != nil {
		return nil, 0, n.t.problems.errno(n.name, err)
	}
	taken, fits := n.t.texts.take(ctx, len(text))
	if !fits {
		n.closed()
		return nil, 0, errnoTooMany
	}
	return &liveHandle{takenHandle{textHandle(text), n.t, taken}, n}, fuse.FOPEN_DIRECT_IO, ok
}

// liveHandle is an opening of a liveNode.
type liveHandle struct {
	takenHandle
	node *liveNode
}

func (h *liveHandle) Release(ctx context.Context) syscall.Errno {
	h.node.closed()
	return h.takenHandle.Release(ctx)
}

// openText opens a file whose text is rendered for the opening.
func (t *tree) openText(ctx context.Context, path string, flags uint32, render func() ([]byte, error)) (fusefs.FileHandle, uint32, syscall.Errno) {
	text, err := render()
	if err != nil {
		return nil, 0, t.problems.errno(path, err)
	}
	taken, fits := t.texts.take(ctx, len(text))
	if !fits {
		return nil, 0, errnoTooMany
	}
	return &takenHandle{textHandle(text), t, taken}, flags, ok
}

// takenHandle is an opening with a text rendered for it.
type takenHandle struct {
	textHandle
	t     *tree
	taken int64 // charged to the tree's texts
}

func (h *takenHandle) Release(context.Context) syscall.Errno {
	h.t.texts.give(h.taken)
	return ok
}

// textHandle is an opening of a text.
type textHandle []byte

func (h textHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return readBytes(h, dest, off), ok
}

// texts bounds what openings of status, metrics and checkpoint by other users keep in memory: each
// opening has its own text, up to 16 MiB. Those of the owner and root are not counted, since they
// can end the mount anyway. It is safe for concurrent use.
type texts struct {
	owner uint32
	most  int64

	mu    sync.Mutex
	taken int64
}

// textsMost is enough for some thousand openings of a usual status.
const textsMost = 32 << 20

// take reserves room for a text of n bytes. It returns how much to give back, and whether there was
// room.
func (s *texts) take(ctx context.Context, n int) (taken int64, fits bool) {
	c, fromClient := ctx.(*fuse.Context)
	if !fromClient || c.Uid == s.owner || c.Uid == 0 {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken+int64(n) > s.most {
		return 0, false
	}
	s.taken += int64(n)
	return int64(n), true
}

func (s *texts) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
}
