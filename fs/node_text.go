package fs

import (
	"context"
	"syscall"

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

// liveNode is a file that is rendered whenever it is opened: status,
// status.json, metrics. Its size is not known before: of all ways to say so,
// size 0 with direct_io, as files of /proc have it, misleads the fewest programs.
// It can be seeked in, since head goes back to where its last line ends.
type liveNode struct {
	readOnly
	t      *tree
	name   string
	render func(context.Context) ([]byte, error)
}

func (n *liveNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return ok
}

func (n *liveNode) attr(out *fuse.Attr) { n.t.attr(out, 0o444, 0, n.t.started) }

func (n *liveNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	return n.t.openText(ctx, n.name, fuse.FOPEN_DIRECT_IO, func() ([]byte, error) { return n.render(p) })
}

// openText opens a file whose text is made for the opening.
func (t *tree) openText(ctx context.Context, path string, flags uint32, render func() ([]byte, error)) (fusefs.FileHandle, uint32, syscall.Errno) {
	text, err := render()
	if err != nil {
		return nil, 0, t.problems.errno(path, err)
	}
	taken, fits := t.texts.take(ctx, len(text))
	if !fits {
		return nil, 0, errnoTooMany
	}
	return &liveHandle{textHandle(text), t, taken}, flags, ok
}

// liveHandle is an opening of a text that was made for it.
type liveHandle struct {
	textHandle
	t     *tree
	taken int64 // of the tree's texts
}

func (h *liveHandle) Release(context.Context) syscall.Errno {
	h.t.texts.give(h.taken)
	return ok
}

// textHandle is an opening of a text.
type textHandle []byte

func (h textHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return readBytes(h, dest, off), ok
}
