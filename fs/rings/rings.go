package rings

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of FUSE over io_uring, of include/uapi/linux/fuse.h.
const (
	commandRegister = 1
	commandCommit   = 2 // and fetch the next request
)

const (
	// workersMost are a processor's threads, on machines of so many processors that all together have threadsMost
	// fewer, down to workersLeast. All register at the start: of requests that the kernel has queued while
	// no thread was free it takes one when a reply comes, and none when a thread is added.
	workersMost, workersLeast = 64, 4
	threadsMost               = 256
	// keptBytes is how much memory of replies is kept for the next ones, about: what was sent
	// last by more threads than that is given back.
	keptBytes = 16 << 20
)

// workersOf is how many threads a processor of n has.
func workersOf(n int) int { return min(workersMost, max(workersLeast, threadsMost/n)) }

// Handler answers a request: it reads In, writes Out, and says how long the reply is, with its header. It may take
// as long as it wants; it is called by many threads at a time.
type Handler func(*Request) (replyBytes int)

// Rings are the threads that answer a file system's requests.
type Rings struct {
	fd           int
	payloadBytes int
	handle       Handler
	log          *slog.Logger
	workers      []*worker    // not changed any more
	kept         atomic.Int64 // bytes of payloads that may be in memory
	threads      sync.WaitGroup
}

// worker is a thread with a ring and room for one request. It takes requests of clients on one processor.
type worker struct {
	rings     *Rings
	processor int
	ring      *ring
	request   *Request
	unique    atomic.Uint64 // of the request under way, 0 for none
	kept      bool          // its payload may be in memory
}

// Start registers with the kernel, of which fd is a descriptor of /dev/fuse behind INIT. From then on requests come
// to the handler, whose replies have up to payloadBytes behind their header; that is the larger of what INIT said of
// writes and of pages. Until it returns the kernel lets all requests wait.
//
// The threads end when the file system is unmounted; fd must stay open until Wait has returned.
func Start(fd, payloadBytes int, handle Handler, log *slog.Logger) (*Rings, error) {
	n, err := processors()
	if err != nil {
		return nil, err
	}
	r := &Rings{fd: fd, payloadBytes: payloadBytes, handle: handle, log: log}
	for i := range n * workersOf(n) {
		r.workers = append(r.workers, &worker{rings: r, processor: i % n})
	}
	registered := make(chan error, len(r.workers))
	for _, w := range r.workers {
		r.threads.Go(func() {
			if err := w.work(registered); err != nil {
				log.Error("a thread that answers requests has ended", "processor", w.processor, "error", err)
			}
		})
	}
	for range r.workers {
		if failed := <-registered; err == nil {
			err = failed
		}
	}
	return r, err
}

// Wait returns when all threads have ended.
func (r *Rings) Wait() { r.threads.Wait() }

// UnderWay are the numbers of the requests that are being answered.
func (r *Rings) UnderWay() []uint64 {
	var all []uint64
	for _, w := range r.workers {
		if u := w.unique.Load(); u != 0 {
			all = append(all, u)
		}
	}
	return all
}

// work is a worker's thread. It says when it is registered, or why not.
func (w *worker) work(registered chan<- error) error {
	// The thread ends with the goroutine that is locked to it, so nobody else runs on it: it may stay on
	// the reader's processor, where there is no other thread to wait for and the caches are warm. Where that processor
	// is not this process' to use, the kernel decides.
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(w.processor)
	_ = unix.SchedSetaffinity(0, &one)
	err := w.register()
	registered <- err
	if err != nil {
		return nil // it is told already
	}
	defer w.close()
	return w.serve()
}

func (w *worker) register() (err error) {
	if w.ring, err = newRing(); err != nil {
		return err
	}
	if w.request, err = newRequest(w.rings.payloadBytes); err != nil {
		return errors.Join(err, w.ring.close())
	}
	w.ring.queue(w.rings.fd, commandRegister, func(s []byte) {
		le.PutUint64(s[16:], uint64(uintptr(unsafe.Pointer(&w.request.parts))))
		le.PutUint32(s[24:], uint32(len(w.request.parts)))
		le.PutUint16(s[48+16:], uint16(w.processor))
	})
	// A registration that fails is done at once, others when the first request comes.
	if err = w.ring.enter(0); err == nil {
		if res, done := w.ring.peek(); done && res < 0 && !ended(res) {
			err = fmt.Errorf("register with the kernel, for processor %d: %w", w.processor, unix.Errno(-res))
		}
	}
	if err != nil {
		return errors.Join(err, w.ring.close(), w.request.free())
	}
	return nil
}

// close gives back what the kernel has no more use for: the ring is closed before the memory that it writes to.
func (w *worker) close() {
	if err := errors.Join(w.ring.close(), w.request.free()); err != nil {
		w.rings.log.Error("the end of a thread that answered requests", "error", err)
	}
}

// ended says whether a command has failed since the file system is no more.
func ended(res int32) bool {
	switch unix.Errno(-res) {
	case unix.ENOTCONN, unix.ECANCELED, unix.ENODEV:
		return true
	}
	return false
}

// serve answers requests until the file system is unmounted.
func (w *worker) serve() error {
	for {
		res, done := w.ring.take()
		if !done {
			if err := w.ring.enter(1); err != nil {
				return err
			}
			continue
		}
		if res < 0 {
			if ended(res) {
				return nil
			}
			return fmt.Errorf("requests of processor %d: %w", w.processor, unix.Errno(-res))
		}
		if err := w.answer(); err != nil {
			return err
		}
	}
}

// answer answers the request that has come, and asks for the next one.
func (w *worker) answer() error {
	r := w.request
	commit := r.commitID()
	w.unique.Store(r.unique())
	n := w.rings.handle(r)
	w.unique.Store(0)
	r.finish(n)
	w.ring.queue(w.rings.fd, commandCommit, func(s []byte) {
		le.PutUint64(s[48+8:], commit)
		le.PutUint16(s[48+16:], uint16(w.processor))
	})
	return w.release(n)
}

// release hands over the reply and gives its memory back, where enough is kept.
func (w *worker) release(replyBytes int) error {
	kept := &w.rings.kept
	if !w.kept && replyBytes > pageBytes {
		w.kept = true
		kept.Add(int64(len(w.request.payload)))
	}
	if !w.kept || kept.Load() <= keptBytes {
		return nil // it is handed over in the call that waits for the next request
	}
	if err := w.ring.enter(0); err != nil {
		return err
	}
	// The kernel has copied the reply. It writes requests to this memory only in calls of this thread (DEFER_TASKRUN);
	// if the last one has brought one, memory is given back another time.
	if _, done := w.ring.peek(); done {
		return nil
	}
	w.kept = false
	kept.Add(-int64(len(w.request.payload)))
	return w.request.drop()
}
