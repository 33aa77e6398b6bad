package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// streamNode is one of a worker's files: in the root, a file of one view; below epoch-N, a pure
// function of its path. Its size and bytes never change.
type streamNode struct {
	readOnly
	t         *tree
	name      fileName
	path      string // below the mount point, for messages
	sizeBytes int64
	mtime     time.Time

	// In the root: the number of the view. A node does not keep a view alive.
	view uint64
	// Below epoch-N: what to open.
	epoch uint64
	from  uint64 // number of records of G that done covers
	done  []order.Done
	total uint64 // number of records of the epoch, once measured
	deal  spec.Assignment
}

// set returns the files that n is one of, and their view, which is nil below epoch-N.
func (n *streamNode) set(ctx context.Context) (fileSet, *view, error) {
	if n.view == 0 {
		s, err := n.t.open(ctx, n.epoch, n.done, n.deal)
		return s, nil, err
	}
	v := n.t.view.Load()
	if v.number != n.view {
		return nil, nil, errStale
	}
	return v.files, v, nil
}

// measure sets the node's size.
func (n *streamNode) measure(ctx context.Context) error {
	s, v, err := n.set(ctx)
	if err != nil {
		return err
	}
	n.mtime, n.total = n.t.started, n.from+s.Remaining()
	if v != nil {
		n.mtime = v.began
	}
	return n.t.orderWait(ctx, func(ctx context.Context) error {
		n.sizeBytes, err = s.SizeBytes(ctx, n.name.worker, n.name.kind)
		return err
	})
}

func (n *streamNode) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.t.streamAttr(&out.Attr, n.sizeBytes, n.mtime)
	if n.view == 0 {
		out.SetTimeout(constantTimeout)
	}
	return ok
}

// streamFlags: direct_io, since readers of the page cache can't be killed while a read is stalled;
// with KEEP_CACHE, since otherwise a stalled read of a mapping makes every later open hang.
const streamFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_KEEP_CACHE

func (n *streamNode) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	if wantsWrite(flags) {
		return nil, 0, errnoReadOnly
	}
	p := n.t.patient(ctx, nil)
	defer p.finish()
	s, v, err := n.set(p)
	if err != nil {
		return nil, 0, n.t.problems.errno(n.path, err)
	}
	file, err := s.Open(p, n.name.worker, n.name.kind)
	if err != nil {
		return nil, 0, n.t.problems.errno(n.path, err)
	}
	h := &streamHandle{t: n.t, node: n, view: v, file: file, begins: file.BeforeRecords(), opened: meter.Now()}
	h.counts = true
	if c, fromClient := ctx.(*fuse.Context); fromClient {
		h.uid, h.pid = c.Uid, processOf(c.Pid)
		h.counts = n.t.readers.counts(c.Uid)
	}
	n.t.handles.add(h)
	return h, streamFlags, ok
}

// streamHandle is one opening of a worker's file.
type streamHandle struct {
	t      *tree
	node   *streamNode
	view   *view // nil below epoch-N
	file   fileHandle
	number uint64 // never 0
	ended  sync.Once
	// The process that opened it, and whether what it is sent counts as delivered.
	uid, pid uint32
	counts   bool
	progress progress     // in a view's data; guarded by its mark's lock
	begins   int64        // offset of the first record
	bytes    atomic.Int64 // sent
	furthest atomic.Int64 // end of what was sent
	opened   int64        // meter.Now
	// began is meter.Now when the last read began, pending the number of reads in flight.
	began   atomic.Int64
	pending atomic.Int32
}

// Read answers with all bytes up to the end of the file, or with an error: short replies to mapped
// reads would be taken for the end of the file.
func (h *streamHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	var retired <-chan struct{}
	if h.view != nil {
		if h.view.isRetired() {
			return nil, h.t.problems.errno(h.node.path, errStale)
		}
		retired = h.view.retired
	}
	want := min(int64(len(dest)), stream.MaxReadBytes, h.node.sizeBytes-off)
	if want <= 0 {
		return fuse.ReadResultData(nil), ok
	}
	if h.t.isEnding() {
		return nil, h.t.problems.errno(h.node.path, errEnding)
	}
	p := h.t.patient(ctx, retired)
	defer p.finish()
	r := newReadReply()
	began := h.begin()
	err := h.file.ReadAt(p, &r.reply, off, int(want))
	r.answered(h, began)
	if err == nil {
		if r.bytes = r.reply.Len(); int64(r.bytes) != want || len(r.reply.Slices) > stream.MaxSlices {
			err = fmt.Errorf("bytes [%d, %d): internal error: the answer has %d bytes in %d slices", off, off+want, r.bytes, len(r.reply.Slices))
		}
		if h.view != nil && h.view.isRetired() {
			err = errStale
		}
		if err != nil {
			r.Done()
		}
	} else {
		r.ended()
		switch {
		case h.view != nil && h.view.isRetired():
			err = errStale
		case errors.Is(err, context.Canceled) && h.t.isEnding():
			err = errEnding
		}
	}
	if err != nil {
		if h.marks() {
			h.view.failed(h)
		}
		return nil, h.t.problems.errno(h.node.path, err)
	}
	h.bytes.Add(want)
	raise(&h.furthest, off+want)
	h.t.traffic.sent(want)
	if h.marks() {
		h.view.awaitRelease(p, h, off, off+want)
		h.view.sent(h, threadOf(ctx), off, off+want)
	}
	return r, ok
}

// reads returns the process that reads through h by a thread, which is not always the one that
// opened it. Reads by the kernel's own threads count as those of the process that opened it.
func (h *streamHandle) reads(thread uint32) process {
	if p := processNamed(thread); p.command != "" {
		return p
	}
	return process{pid: h.pid}
}

// marks reports whether reads of h move a mark, if its user's reads count.
func (h *streamHandle) marks() bool { return h.view != nil && h.node.name.kind == stream.Data }

// Flush comes with every close of a descriptor, before close() returns.
func (h *streamHandle) Flush(context.Context) syscall.Errno {
	if h.marks() {
		h.view.flushed(h)
	}
	return ok
}

func (h *streamHandle) Release(context.Context) syscall.Errno {
	h.t.handles.remove(h)
	h.close()
	return ok
}

// close is idempotent.
func (h *streamHandle) close() {
	h.ended.Do(func() {
		if h.marks() {
			h.view.closed(h)
		}
		h.file.Close()
	})
}

// readReply is a stream.Reply on its way to the kernel. go-fuse calls Slices, writes them, and then
// calls Done; it calls neither for an empty result.
type readReply struct {
	reply stream.Reply
	bytes int

	handle *streamHandle // nil once the read has ended
	at     int64         // meter.Now when it was answered
}

// A reply in flight belongs to a request, and the kernel bounds the number of requests.
var readReplies = sync.Pool{New: func() any { return &readReply{} }}

func newReadReply() *readReply { return readReplies.Get().(*readReply) }

func (r *readReply) Size() int                       { return r.bytes }
func (r *readReply) Slices() ([][]byte, fuse.Status) { return r.reply.Slices, fuse.OK }

func (r *readReply) Bytes(buf []byte) ([]byte, fuse.Status) {
	buf = buf[:0]
	for _, s := range r.reply.Slices {
		buf = append(buf, s...)
	}
	return buf, fuse.OK
}

// Done gives everything back.
func (r *readReply) Done() {
	r.ended()
	r.reply.Release()
	r.bytes = 0
	readReplies.Put(r)
}

// begin records that a read has begun, and returns meter.Now.
func (h *streamHandle) begin() int64 {
	if h.marks() {
		h.view.begin(h)
	}
	now := meter.Now()
	h.began.Store(now)
	h.pending.Add(1)
	h.t.meter.Queued[meter.FUSE].Add(1)
	return now
}

// answered records that ReadAt has returned.
func (r *readReply) answered(h *streamHandle, began int64) {
	r.handle, r.at = h, meter.Now()
	h.t.meter.Copied.Add(r.at - began - r.reply.WaitedNanos())
}

// ended records that the kernel has the reply, or gets none.
func (r *readReply) ended() {
	h := r.handle
	if h == nil {
		return
	}
	r.handle = nil
	h.pending.Add(-1)
	m := h.t.meter
	m.Queued[meter.FUSE].Add(-1)
	m.Replied.Add(meter.Now() - r.at)
}

// handles are all open handles of streams.
type handles struct {
	mu     sync.Mutex
	last   uint64
	byNum  map[uint64]*streamHandle
	opened uint64
	read   closedReads
	left   map[string]streamPlace // by path, of closed handles
}

func (s *handles) add(h *streamHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNum == nil {
		s.byNum = make(map[uint64]*streamHandle)
	}
	s.last++
	s.opened++
	h.number = s.last
	s.byNum[h.number] = h
}

func (s *handles) remove(h *streamHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNum, h.number)
	s.read.note(h)
	s.leave(h)
}

func (s *handles) all() []*streamHandle {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*streamHandle, 0, len(s.byNum))
	for _, h := range s.byNum {
		all = append(all, h)
	}
	return all
}

func (s *handles) count() (open int, opened uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byNum), s.opened
}

// nodesOf returns the open nodes of a view.
func (s *handles) nodesOf(v *view) []*streamNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := make(map[*streamNode]struct{})
	var nodes []*streamNode
	for _, h := range s.byNum {
		if _, again := seen[h.node]; h.view == v && !again {
			seen[h.node] = struct{}{}
			nodes = append(nodes, h.node)
		}
	}
	return nodes
}

// process is a process that reads. In another container its number is 0, and its command empty.
type process struct {
	pid     uint32
	command string // from /proc/PID/comm: without arguments, which may contain secrets
}

// processNamed returns the process that a thread belongs to, with its command.
func processNamed(thread uint32) process {
	p := process{pid: processOf(thread)}
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid)); err == nil && ownProc() {
		p.command = string(bytes.TrimSpace(comm))
	}
	return p
}

// processOf returns the process that a thread belongs to, because FUSE reports the thread that made
// a request. If /proc does not show it, it returns the thread's number.
func processOf(thread uint32) uint32 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", thread))
	if err != nil || !ownProc() {
		return thread
	}
	for line := range bytes.Lines(status) {
		if number, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			if n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 32); err == nil {
				return uint32(n)
			}
		}
	}
	return thread
}
