package rings

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands of FUSE over io_uring, from include/uapi/linux/fuse.h.
const (
	commandRegister = 1
	commandCommit   = 2 // and fetch the next request
)

const (
	// keptBytes is approximately how much memory of replies is kept for later ones, on machines of
	// up to 16 processors; on larger ones it is a 16th of that for each processor. Threads give
	// back what exceeds this.
	keptBytes = 16 << 20
	// keptSmall is how much a thread always keeps.
	keptSmall = 64 << 10
)

// Handler answers a request: it reads In, writes Out, and returns the length of the reply,
// including its header. It may take any time; many threads call it concurrently.
type Handler func(*Request) (replyBytes int)

// Rings are the threads that answer a file system's requests.
type Rings struct {
	fd           int
	payloadBytes int
	handle       Handler
	log          *slog.Logger
	workers      []*worker    // does not change any more
	keptMost     int64        // bound on kept
	kept         atomic.Int64 // bytes of payloads that may be in memory
	allowed      unix.CPUSet  // processors that threads of this process may use
	threads      sync.WaitGroup
}

// worker is a thread with a ring and room for one request. It takes requests of clients on one
// processor.
type worker struct {
	rings     *Rings
	processor int
	ring      *ring
	request   *Request
	unique    atomic.Uint64 // of the request in flight, 0 for none
	kept      int64         // bytes of its payload that may be in memory
}

// Start registers with the kernel; fd is a descriptor of /dev/fuse, after INIT. From then on
// requests go to the handler, whose replies have up to payloadBytes after their header; that is the
// larger of the sizes of writes and of pages in INIT. Until each processor has a thread the kernel
// holds all requests back. If Start fails, threads that have registered end with the file system.
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

// UnderWay returns the numbers of the requests that are being answered.
func (r *Rings) UnderWay() []uint64 {
	var all []uint64
	for _, w := range r.workers {
		if u := w.unique.Load(); u != 0 {
			all = append(all, u)
		}
	}
	return all
}

// work is a worker's thread. It reports when it is registered, or why not.
func (w *worker) work(registered chan<- error) error {
	// The thread ends with the goroutine that is locked to it, so no other goroutine runs on it: it
	// can stay on the reader's processor, where there is no other thread to wait for and the caches
	// are warm. If this process may not use that processor, the kernel decides.
	runtime.LockOSThread()
	if w.rings.allowed.IsSet(w.processor) {
		var one unix.CPUSet
		one.Set(w.processor)
		_ = unix.SchedSetaffinity(0, &one) // without it everything still works, but slower
	}
	err := w.register()
	registered <- err
	if err != nil {
		return nil // already reported
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
	// A failed registration completes at once, a successful one when the first request comes.
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

// close frees what the kernel no longer uses: the ring is closed before the memory that it writes
// to.
func (w *worker) close() {
	if err := errors.Join(w.ring.close(), w.request.free()); err != nil {
		w.rings.log.Error("the end of a thread that answered requests", "error", err)
	}
}

// ended reports whether a command has failed because the file system is gone.
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

// release sends the reply, and gives memory back if enough is kept; used is how much of the payload
// was used.
func (w *worker) release(used int64) error {
	all := &w.rings.kept
	if used > w.kept {
		all.Add(used - w.kept)
		w.kept = used
	}
	if w.kept <= keptSmall || all.Load() <= w.rings.keptMost {
		return nil // sent by the call that waits for the next request
	}
	if err := w.ring.enter(0); err != nil {
		return err
	}
	// The kernel has copied the reply. It writes requests to this memory only in calls of this
	// thread (DEFER_TASKRUN); if the last call has brought one, memory is given back another time.
	if _, done := w.ring.peek(); done {
		return nil
	}
	all.Add(-w.kept)
	w.kept = 0
	return w.request.drop()
}

// Parameter is the kernel's switch.
const Parameter = "/sys/module/fuse/parameters/enable_uring"

// Offered returns what prevents a mount from using FUSE over io_uring, or nil. It makes as many
// rings as a mount does, because they take descriptors and, for ordinary users, locked memory.
func Offered() error {
	set, err := os.ReadFile(Parameter)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("the kernel has no FUSE over io_uring: it needs Linux 6.14 or newer, built with CONFIG_FUSE_IO_URING")
	case err != nil:
		return err
	case !bytes.HasPrefix(set, []byte("Y")):
		return fmt.Errorf("the kernel has FUSE over io_uring switched off: write Y to %s, as root (or boot with fuse.enable_uring=1)", Parameter)
	}
	workers, err := crew()
	if err != nil {
		return err
	}
	n := sum(workers)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	} else if uint64(n) > files.Cur/2 {
		return fmt.Errorf("FUSE over io_uring takes %d open files here, and this process may have %d: allow it more (ulimit -n %d)", n, files.Cur, 4*n)
	}
	for range n {
		r, err := newRing()
		if err != nil {
			return fmt.Errorf("%w: %d rings of io_uring are not to be had here (containers often forbid it; ulimit -l bounds those of users)", err, n)
		}
		defer r.close()
	}
	return nil
}
