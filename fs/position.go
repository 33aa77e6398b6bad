package fs

import (
	"context"
	"math"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// positionNode is the file checkpoint of from-M: the document of exactly that position. It is
// rendered when it is opened, since there may be many, of up to 16 MiB each.
type positionNode struct {
	readOnly
	t         *tree
	path      string // below the mount point
	at        checkpoint.Position
	sizeBytes int64
}

// position looks up the file checkpoint of from-M. At the end of an epoch, its position is the
// start of the next epoch. In a growing dataset this holds once the next epoch has started; until
// then it is the end of this epoch, in another file.
func (n *epochNode) position(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	p := n.t.patient(ctx, nil)
	defer p.finish()
	node := &positionNode{t: n.t, path: n.below + "/" + nameCheckpoint}
	name, lasts := node.path, true
	records, err := n.t.recordsOf(p, n.epoch)
	if err != nil {
		return nil, n.t.problems.errno(node.path, err)
	}
	subject := n.t.subject
	subject.Records = records
	node.at = subject.Position(n.epoch, n.from, n.epoch < math.MaxUint64 && n.t.taken(n.epoch+1))
	if n.from == records && node.at.Epoch == n.epoch && n.t.growing != nil {
		lasts, name = false, name+"/end" // no path is below a file
	}
	doc, err := node.render(p)
	if err != nil {
		return nil, n.t.problems.errno(node.path, err)
	}
	node.sizeBytes = int64(len(doc))
	node.attr(&out.Attr)
	if lasts {
		constant(out)
		n.t.lookups.add(n.EmbeddedInode(), nameCheckpoint)
	}
	return n.NewInode(ctx, node, n.t.named(syscall.S_IFREG, name)), ok
}

// render writes the document. It is always the same.
func (n *positionNode) render(ctx context.Context) ([]byte, error) {
	fingerprint, err := n.t.fingerprintOf(ctx, n.at.Epoch)
	if err != nil {
		return nil, err
	}
	records, err := n.t.recordsOf(ctx, n.at.Epoch)
	if err != nil {
		return nil, err
	}
	return n.t.documentOf(n.at, fingerprint, records, make([]uint64, n.t.spec.Deal.Workers)), nil
}

func (n *positionNode) attr(out *fuse.Attr) { n.t.attr(out, 0o444, n.sizeBytes, n.t.started) }

func (n *positionNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	out.SetTimeout(constantTimeout)
	return ok
}

func (n *positionNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	return n.t.openText(ctx, n.path, streamFlags, func() ([]byte, error) { return n.render(p) })
}
