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

// sampled says that each epoch has other records, and another number of them.
func (t *tree) sampled() bool { return t.spec.Order.Sample.Or() != spec.Sample{} }

// recordsOf is T of an epoch. Of a sample it may take some nanoseconds a record of the
// dataset.
func (t *tree) recordsOf(ctx context.Context, epoch uint64) (uint64, error) {
	if !t.sampled() {
		return t.records, nil
	}
	return t.dataset.EpochRecords(ctx, epoch)
}

// subjectAt is what a checkpoint of an epoch is judged by.
func (t *tree) subjectAt(epoch uint64) (fingerprint string, records uint64, err error) {
	records, err = t.recordsOf(context.Background(), epoch)
	return t.fingerprint, records, err
}

// description is dataset.json of an epoch, which is rendered when somebody asks first.
type description struct {
	once sync.Once
	text []byte
	err  error
}

func (d *description) of(t *tree, epoch uint64) ([]byte, error) {
	d.once.Do(func() { d.text, d.err = t.dataset.DescribeEpoch(context.Background(), epoch) })
	return d.text, d.err
}

// describe is dataset.json in the root. Of a sample it is that of the current epoch, so that
// it is another file after a restore.
func (n *rootNode) describe(ctx context.Context, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if !n.t.sampled() {
		return n.fixed(ctx, out, inoDataset, n.t.description), ok
	}
	v := n.t.view.Load()
	text, err := v.description.of(n.t, v.position.Epoch)
	if err != nil {
		return nil, n.t.problems.errno(nameDataset, err)
	}
	f := &fixedNode{t: n.t, text: text}
	f.attr(&out.Attr)
	return n.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: v.descriptionIno()}), ok
}

// describe is dataset.json of an epoch, which there is where epochs differ.
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

// describes says that the directory has a dataset.json.
func (n *epochNode) describes() bool { return n.t.sampled() && !n.isFrom }

// sampleName is the share of the records that an epoch has, "" for all.
func (t *tree) sampleName() string {
	if !t.sampled() {
		return ""
	}
	return t.spec.Order.Sample.String()
}

// sampleWords say which records the files have, "" where that is all.
func (t *tree) sampleWords(epoch uint64) string {
	if !t.sampled() {
		return ""
	}
	return fmt.Sprintf(" in epoch %d (--sample %s: each epoch has others)", epoch, t.spec.Order.Sample)
}
