package fs

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// controlNode is the file checkpoint, as a node of one view: its size is that
// of the view's document.
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

// Setattr accepts everything without effect on the state: shells truncate
// before they write, cp sets modes and times after it.
func (n *controlNode) Setattr(ctx context.Context, f fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, truncates := in.GetSize(); truncates {
		// Only ftruncate brings a handle, open with O_TRUNC does not.
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

// controlHandle is one opening of the control file: the document as it was
// then, for reads, and a draft for writes. A draft takes effect at a flush
// (every close of a descriptor sends one) or fsync, whole or not at all.
type controlHandle struct {
	t        *tree
	snapshot []byte
	texts    int64 // of the tree's texts
	writes   bool
	thread   uint32 // that has opened it, for the tree's writers

	mu    sync.Mutex
	draft draft
	taken int64 // bytes of the tree's room
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

// impossible says why nothing that begins with doc can be restored here. A
// document that is complete is judged against the dataset too: most shells look
// at what write says, and not at close.
func (t *tree) impossible(ctx context.Context, doc []byte) error {
	_, err := checkpoint.Resolve(doc, t.judgedBy(ctx))
	if errors.Is(err, checkpoint.ErrIncomplete) || errors.Is(err, context.Canceled) {
		return nil // the commit judges once more
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
		// What lacks a part is no document, and the reason is this one.
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

// makeRoom takes room for a draft of end bytes. The caller holds mu.
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

// truncateUnwritten empties a draft that nothing was written to yet.
func (h *controlHandle) truncateUnwritten() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.draft.dirty && len(h.draft.buf) == 0 && h.draft.refused == nil {
		h.draft.truncate(0)
	}
}

// Flush commits what was written. Nothing written is fine, unless the file was emptied
// before: who copies an empty file here is told so. A shell gets that, too, for the
// descriptor that it closes before its command has written, and pays no heed to it.
func (h *controlHandle) Flush(ctx context.Context) syscall.Errno { return h.commit(ctx) }

// Fsync commits as Flush does.
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

// Release drops a draft that was not committed. That it stayed empty is known only now.
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

// writers are the openings of the control file for writing, by the thread that has opened
// one last: O_TRUNC comes as a request of its own, of the same thread, which does not name
// the opening. The zero value has none; it is safe for concurrent use.
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

// emptied records that thread has cut the file to nothing by its name.
func (w *writers) emptied(thread uint32) {
	w.mu.Lock()
	h := w.last[thread]
	w.mu.Unlock()
	if h != nil {
		h.truncateUnwritten()
	}
}

// readBytes answers a read of a file that is in memory, and stays as it is.
func readBytes(b, dest []byte, off int64) fuse.ReadResult {
	if off >= int64(len(b)) {
		return fuse.ReadResultData(nil)
	}
	return fuse.ReadResultData(b[off:min(off+int64(len(dest)), int64(len(b)))])
}

// hiddenName is the state of a name that was unlinked: gone until it is made
// again, for some time at most, since mv from another file system unlinks before
// it writes, and a control file that stays away would be the end of the mount.
//
// mv makes the file with O_EXCL, however long it was held up before that. So the name is
// gone for the thread that has unlinked it for longer than for others, who would miss it.
type hiddenName struct {
	mu         sync.Mutex
	most       time.Duration // for all
	mostOwn    time.Duration // for the thread that has unlinked it
	thread     uint32        // 0: not known
	hiddenFrom time.Time     // zero: it is there
}

const (
	// hiddenFor is how long the control file's name is gone at most.
	hiddenFor = time.Second
	// hiddenForOwn is the same for the thread that has unlinked it: longer than a busy
	// machine holds a program up.
	hiddenForOwn = 30 * time.Second
)

// threadOf is the client's thread that asks, 0 when it has no number here.
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

// isHidden says whether the name is gone for who asks.
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
