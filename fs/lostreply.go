package fs

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// A reply may be slices of mapped shards, which the kernel copies when it is handed
// over. Where a page of them is gone by then, and can't be read again, that fails: the
// reader gets EIO, and nobody is told but go-fuse's log. So that log is listened to.
// go-fuse writes it on the thread that has called Done of the reply just before.

// errLostReply is what is wrong with such a read.
var errLostReply = errors.New("a page of a mapped shard was gone, and could not be read again, when it was handed to the reader")

// lastReply is the last reply of a handle that go-fuse is done with.
type lastReply struct {
	thread       atomic.Int64 // that was done with it, 0 for none
	at           atomic.Int64 // meter.Now
	off, end     atomic.Int64
	before, mark atomic.Int64 // the mark before the read and after it, equal where it did not move it
}

// note records a reply, as the last that its thread does about it.
func (l *lastReply) note(r *readReply) {
	l.off.Store(r.off)
	l.end.Store(r.off + int64(r.bytes))
	l.before.Store(r.before)
	l.mark.Store(r.mark)
	l.at.Store(meter.Now())
	l.thread.Store(int64(unix.Gettid()))
}

// lostReplies takes what go-fuse's server logs.
type lostReplies struct {
	t    *tree
	log  io.Writer
	line string // what it writes of a read whose reply the kernel could not copy
}

// serverLog is the log of go-fuse's server.
func (t *tree) serverLog() *log.Logger {
	w := &lostReplies{t: t, log: slog.NewLogLogger(t.log.Handler(), slog.LevelWarn).Writer()}
	w.line = fmt.Sprintf("writer: Write/Writev failed, err: %v. opcode: READ", fuse.Status(syscall.EFAULT))
	return log.New(w, "", 0)
}

func (w *lostReplies) Write(line []byte) (int, error) {
	if strings.TrimSpace(string(line)) == w.line {
		w.t.lostReply(int64(unix.Gettid()))
		return len(line), nil
	}
	return w.log.Write(line)
}

// lostReply notes the fault of the reply that a thread was done with last, and moves
// the mark back that it has moved.
func (t *tree) lostReply(thread int64) {
	var h *streamHandle
	for _, x := range t.handles.all() {
		if x.last.thread.Load() == thread && (h == nil || x.last.at.Load() > h.last.at.Load()) {
			h = x
		}
	}
	if h == nil {
		t.problems.note("a stream", errLostReply)
		return
	}
	if h.marks() {
		h.view.unsent(h, h.last.before.Load(), h.last.mark.Load())
	}
	t.problems.note(h.node.path, fmt.Errorf("bytes [%d, %d): %w", h.last.off.Load(), h.last.end.Load(), errLostReply))
}
