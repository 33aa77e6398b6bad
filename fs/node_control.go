package fs

import (
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// controlNode is the file checkpoint as a node of one view: its size is that of the view's
// document.
type controlNode struct {
	fusefs.Inode
	t         *tree
	sizeBytes int64
	moved     func() time.Time
}

func (n *controlNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.attr(&out.Attr)
	return ok
}

func (n *controlNode) attr(out *fuse.Attr) { n.t.attr(out, n.t.controlMode, n.sizeBytes, n.moved()) }

// Setattr accepts everything without effect on the state: shells truncate before they write, cp
// sets modes and times afterwards.
func (n *controlNode) Setattr(ctx context.Context, f fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, truncates := in.GetSize(); truncates {
		// Only ftruncate comes with a handle, open with O_TRUNC does not.
		if h, isControl := f.(*controlHandle); isControl {
			h.truncate(int64(size))
		} else if size == 0 {
			n.t.writers.emptied(threadOf(ctx))
		}
	}
	n.attr(&out.Attr)
	return ok
}

func (n *controlNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	h, err := n.t.newControlHandle(ctx, flags)
	if err != nil {
		return nil, 0, n.t.problems.errno(nameCheckpoint, err)
	}
	var fits bool
	if h.texts, fits = n.t.texts.take(ctx, len(h.snapshot)); !fits {
		return nil, 0, errnoTooMany
	}
	n.t.writers.opened(threadOf(ctx), h)
	// Not KEEP_CACHE: pages of the last opening show another state.
	return h, fuse.FOPEN_DIRECT_IO, ok
}

func (n *controlNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	statfs(out)
	return ok
}

// controlHandle is one opening of the control file: the document at that time, for reads, and a
// draft for writes. A draft takes effect at a flush (every close of a descriptor sends one) or
// fsync, as a whole or not at all.
type controlHandle struct {
	t        *tree
	snapshot []byte
	texts    int64 // charged to the tree's texts
	writes   bool
	thread   uint32 // that opened it, for the tree's writers

	mu    sync.Mutex
	draft draft
	taken int64 // bytes of the tree's room for scratch files and drafts
}

func (t *tree) newControlHandle(ctx context.Context, flags uint32) (*controlHandle, error) {
	h := &controlHandle{t: t, draft: draft{appends: flags&syscall.O_APPEND != 0}}
	if h.writes = wantsWrite(flags); flags&syscall.O_ACCMODE == syscall.O_WRONLY {
		return h, nil
	}
	p := t.patient(ctx, nil)
	defer p.finish()
	var err error
	h.snapshot, err = t.snapshot(p, t.view.Load())
	return h, err
}

// impossible returns why nothing that begins with doc can be restored here, or nil. A complete
// document is also judged against the dataset, because most shells check the result of write but
// not of close.
func (t *tree) impossible(ctx context.Context, doc []byte) error {
	_, err := checkpoint.Resolve(doc, t.judgedBy(ctx))
	if errors.Is(err, checkpoint.ErrIncomplete) || errors.Is(err, context.Canceled) {
		return nil // the commit judges it again
	}
	return err
}

func (h *controlHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return readBytes(h.snapshot, dest, off), ok
}

func (h *controlHandle) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.t.patient(ctx, nil)
	defer p.finish()
	h.draft.impossible = func(doc []byte) error { return h.t.impossible(p, doc) }
	end := h.draft.end(off, len(data))
	if h.draft.refused != nil {
		return 0, restoreErrno(h.draft.refused)
	}
	err := h.makeRoom(end)
	if err != nil {
		// A document that lacks a part is incomplete, but the reason to report is this one.
		h.draft.refuse(err)
	} else {
		err = h.draft.write(data, off)
	}
	if err != nil {
		h.t.refusals.note(h.t.log, err)
		return 0, restoreErrno(err)
	}
	return uint32(len(data)), ok
}

// makeRoom reserves room for a draft of end bytes. The caller must hold mu.
func (h *controlHandle) makeRoom(end int64) error {
	if end > checkpoint.MaxBytes {
		return checkpoint.ErrTooLarge
	}
	if more := end - h.taken; more > 0 {
		if err := h.t.scratch.take(more); err != nil {
			return err
		}
		h.taken = end
	}
	return nil
}

func (h *controlHandle) truncate(size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draft.truncate(size)
}

// truncateUnwritten empties a draft to which nothing has been written yet.
func (h *controlHandle) truncateUnwritten() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.draft.dirty && len(h.draft.buf) == 0 && h.draft.refused == nil {
		h.draft.truncate(0)
	}
}

// Flush commits what was written. It is fine if nothing was, unless the file was emptied before:
// copying an empty file here is an error. A shell gets that error, too, for the descriptor that it
// closes before its command has written, but ignores it.
func (h *controlHandle) Flush(ctx context.Context) syscall.Errno { return h.commit(ctx) }

// Fsync commits, like Flush.
func (h *controlHandle) Fsync(ctx context.Context, _ uint32) syscall.Errno { return h.commit(ctx) }

func (h *controlHandle) commit(ctx context.Context) syscall.Errno {
	h.mu.Lock()
	defer h.mu.Unlock()
	doc, err := h.draft.ready()
	if err != nil {
		if h.draft.refused == nil && !h.draft.emptied { // see Release
			h.t.refusals.note(h.t.log, err)
		}
		return restoreErrno(err)
	}
	if doc == nil {
		return ok
	}
	p := h.t.patient(ctx, nil)
	defer p.finish()
	err = h.t.restore(p, doc)
	h.draft.settle(err)
	return restoreErrno(err)
}

// Release drops a draft that was not committed. Only now is it known that an emptied draft stayed
// empty.
func (h *controlHandle) Release(context.Context) syscall.Errno {
	h.t.writers.closed(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draft.emptied {
		h.t.refusals.note(h.t.log, errEmpty)
	}
	h.t.scratch.give(h.taken)
	h.t.texts.give(h.texts)
	h.taken, h.texts = 0, 0
	h.draft = draft{}
	return ok
}

// writers are the openings of the control file for writing, by the thread whose latest opening it
// is. O_TRUNC comes as a separate request from the same thread, which does not identify the
// opening. The zero value is empty. It is safe for concurrent use.
type writers struct {
	mu   sync.Mutex
	last map[uint32]*controlHandle
}

func (w *writers) opened(thread uint32, h *controlHandle) {
	if !h.writes {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = make(map[uint32]*controlHandle)
	}
	w.last[thread], h.thread = h, thread
}

func (w *writers) closed(h *controlHandle) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[h.thread] == h {
		delete(w.last, h.thread)
	}
}

// emptied records that thread has truncated the file by its name.
func (w *writers) emptied(thread uint32) {
	w.mu.Lock()
	h := w.last[thread]
	w.mu.Unlock()
	if h != nil {
		h.truncateUnwritten()
	}
}

// readBytes answers a read of a file that is in memory and does not change.
func readBytes(b, dest []byte, off int64) fuse.ReadResult {
	if off >= int64(len(b)) {
		return fuse.ReadResultData(nil)
	}
	return fuse.ReadResultData(b[off:min(off+int64(len(dest)), int64(len(b)))])
}

// hiddenName is the state of a name that was unlinked: gone until it is created again, but only for
// a limited time. mv from another file system unlinks before it writes, and a control file that
// stayed away would make the mount useless.
//
// mv creates the file with O_EXCL, however long it was delayed before that. So the name is gone for
// longer for the thread that has unlinked it than for others, which would miss it.
type hiddenName struct {
	mu         sync.Mutex
	most       time.Duration // for all threads
	mostOwn    time.Duration // for the thread that has unlinked it
	thread     uint32        // 0: unknown
	hiddenFrom time.Time     // zero: the name is there
}

const (
	// hiddenFor is how long the control file's name is gone at most.
	hiddenFor = time.Second
	// hiddenForOwn is the same for the thread that has unlinked it: longer than a busy machine
	// delays a program.
	hiddenForOwn = 30 * time.Second
)

// threadOf returns the client's thread that made the request, 0 if it has no number here.
func threadOf(ctx context.Context) uint32 {
	if c, fromClient := ctx.(*fuse.Context); fromClient {
		return c.Pid
	}
	return 0
}

func (h *hiddenName) hide(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hiddenFrom, h.thread = time.Now(), threadOf(ctx)
}

func (h *hiddenName) show() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hiddenFrom = time.Time{}
}

// isHidden reports whether the name is gone for the thread that made the request.
func (h *hiddenName) isHidden(ctx context.Context) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hiddenFrom.IsZero() {
		return false
	}
	most := h.most
	if h.thread != 0 && h.thread == threadOf(ctx) {
		most = max(most, h.mostOwn)
	}
	return time.Since(h.hiddenFrom) < most
}

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
