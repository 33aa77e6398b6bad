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
	// keptBytes is how much memory of replies is kept for the next ones, about, on machines of up to 16 processors, and a
	// 16th of it for each processor of larger ones: what was sent last by more threads than that is given back.
	keptBytes = 16 << 20
	// keptSmall is how much a thread always keeps.
	keptSmall = 64 << 10
)

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
	keptMost     int64        // of kept
	kept         atomic.Int64 // bytes of payloads that may be in memory
	allowed      unix.CPUSet  // processors that threads of this process may be on
	threads      sync.WaitGroup
}

// worker is a thread with a ring and room for one request. It takes requests of clients on one processor.
type worker struct {
	rings     *Rings
	processor int
	ring      *ring
	request   *Request
	unique    atomic.Uint64 // of the request under way, 0 for none
	kept      int64         // bytes of its payload that may be in memory
}

// Start registers with the kernel, of which fd is a descriptor of /dev/fuse behind INIT. From then on requests come
// to the handler, whose replies have up to payloadBytes behind their header; that is the larger of what INIT said of
// writes and of pages. Until each processor has a thread the kernel lets all requests wait. Where it fails, threads that
// have registered end with the file system.
//
// The threads end when the file system is unmounted; fd must stay open until Wait has returned.
func Start(fd, payloadBytes int, handle Handler, log *slog.Logger) (*Rings, error) {
	workers, err := crew()
	if err != nil {
		return nil, err
	}
	r := &Rings{fd: fd, payloadBytes: payloadBytes, handle: handle, log: log, keptMost: keptBytes / 16 * int64(max(16, len(workers)))}
	if err := unix.SchedGetaffinity(0, &r.allowed); err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
	}
	for processor, n := range workers {
		for range n {
			r.workers = append(r.workers, &worker{rings: r, processor: processor})
		}
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
	if w.rings.allowed.IsSet(w.processor) {
		var one unix.CPUSet
		one.Set(w.processor)
		_ = unix.SchedSetaffinity(0, &one) // without it all is as right, and slower
	}
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
	return w.release(max(int64(n), r.cameBytes()))
}

// release hands over the reply and gives memory back, where enough is kept; so much of the payload was used.
func (w *worker) release(used int64) error {
	all := &w.rings.kept
	if used > w.kept {
		all.Add(used - w.kept)
		w.kept = used
	}
	if w.kept <= keptSmall || all.Load() <= w.rings.keptMost {
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
	all.Add(-w.kept)
	w.kept = 0
	return w.request.drop()
}
