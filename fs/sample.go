package fs

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// sampled reports whether epochs have different records, and different numbers of them.
func (t *tree) sampled() bool { return t.spec.Order.Sample.Or() != spec.Subsample{} }

// recordsOf is T of an epoch. If epochs differ it may take some nanoseconds for each record of the
// dataset or, if the dataset grows, wait until the epoch's shards are indexed.
func (t *tree) recordsOf(ctx context.Context, epoch uint64) (uint64, error) {
	if !t.differ() {
		return t.records, nil
	}
	return t.dataset.EpochRecords(ctx, epoch)
}

// description is dataset.json of an epoch, which is rendered at the first request.
type description struct {
	mu   sync.Mutex
	text []byte // nil until it has been rendered
}

func (d *description) of(ctx context.Context, t *tree, epoch uint64) (text []byte, err error) {
	d.mu.Lock()
	text = d.text
	d.mu.Unlock()
	if text != nil {
		return text, nil
	}
	if text, err = t.dataset.DescribeEpoch(ctx, epoch); err == nil { // always the same
		d.mu.Lock()
		d.text = text
		d.mu.Unlock()
	}
	return text, err
}

// describe returns dataset.json in the root. If epochs differ it is that of the current one, and
// another file after a restore.
func (n *rootNode) describe(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !n.t.differ() {
		return n.fixed(ctx, out, inoDataset, n.t.description), ok
	}
	v := n.t.view.Load()
	p := n.t.patient(ctx, nil)
	text, err := v.description.of(p, n.t, v.position.Epoch)
	p.finish()
	if err != nil {
		return nil, n.t.problems.errno(nameDataset, err)
	}
	f := &fixedNode{t: n.t, text: text}
	f.attr(&out.Attr)
	return n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.descriptionIno()}), ok
}

// describe returns dataset.json of an epoch, which exists if epochs differ.
func (n *epochNode) describe(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	child := n.GetChild(nameDataset)
	var f *fixedNode
	if child != nil {
		f, _ = child.Operations().(*fixedNode)
	}
	if f == nil {
		p := n.t.patient(ctx, nil)
		text, err := n.t.dataset.DescribeEpoch(p, n.epoch)
		p.finish()
		path := n.below + "/" + nameDataset
		if err != nil {
			return nil, n.t.problems.errno(path, err)
		}
		f = &fixedNode{t: n.t, text: text}
		child = n.NewInode(ctx, f, n.t.named(syscall.S_IFREG, path))
		n.t.lookups.add(n.EmbeddedInode(), nameDataset)
	}
	f.attr(&out.Attr)
	constant(out)
	return child, ok
}

// describes reports whether the directory has a dataset.json.
func (n *epochNode) describes() bool { return n.t.differ() && !n.isFrom }

// sampleName is the share of the records that an epoch has, "" for all.
func (t *tree) sampleName() string {
	if !t.sampled() {
		return ""
	}
	return t.spec.Order.Sample.String()
}

// sampleWords describe which records the files have, "" if all.
func (t *tree) sampleWords(epoch uint64) string {
	if !t.sampled() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d (--sample %s: different in each epoch)", epoch, t.spec.Order.Sample)
}
