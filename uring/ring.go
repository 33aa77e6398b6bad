package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"golang.org/x/sys/unix"
)

// Flags of io_uring_setup(2) that the library has no options for.
const (
	setupClamp        = 1 << 4
	setupSubmitAll    = 1 << 7  // Linux 5.18
	setupSingleIssuer = 1 << 12 // Linux 6.0
	setupDeferTaskrun = 1 << 13 // Linux 6.1

	setupPreferred = setupSingleIssuer | setupDeferTaskrun | setupSubmitAll | setupClamp
)

// ring is a go-uring ring as far as that library can be used: it fills, submits and reaps entries.
// It belongs to one goroutine, which must be locked to its thread since before openRing.
type ring struct {
	*gouring.Ring
	flags uint32 // accepted by the kernel
}

// openRing makes a ring with the preferred flags, or with none if the kernel does not support them.
func openRing(entries uint32) (*ring, error) {
	r, err := newRing(entries, setupPreferred)
	if errors.Is(err, unix.EINVAL) {
		r, err = newRing(entries, setupClamp)
	}
	return r, err
}

func newRing(entries, flags uint32) (*ring, error) {
	r, err := gouring.New(entries, setupFlags(gouring.New, flags))
	if err == nil {
		return &ring{Ring: r, flags: flags}, nil
	}
	if r != nil {
		// The library has unmapped what it mapped but left the ring open.
		err = fmt.Errorf("map the ring: %w", err)
		_ = syscall.Close(r.Fd())
	}
	return nil, err
}

// setupFlags is a setup option that sets flags. The library's options are functions of an
// unexported type, which inference can name although we can't: P is its parameter struct, laid out
// like the kernel's, with the flags third.
func setupFlags[O ~func(*P), P, R any](_ func(uint32, ...O) (R, error), flags uint32) O {
	return func(p *P) { (*[3]uint32)(unsafe.Pointer(p))[2] |= flags }
}

// close frees everything. The library's Close leaves the array of submission entries mapped, which
// keeps the whole ring, its threads and its pinned memory.
func (r *ring) close() error {
	entries := r.submissionEntries()
	return errors.Join(r.Close(), syscall.Munmap(entries))
}

// submissionEntries is the mapping of the array of submission entries, which the library keeps in
// an unexported field.
func (r *ring) submissionEntries() []byte {
	return reflect.ValueOf(r.Ring).Elem().FieldByName("sqRing").Elem().FieldByName("sqeBuff").Bytes()
}

// ringReader reads through one ring, which is owned by one goroutine: only that fills, submits and
// reaps. Submitters leave jobs in an inbox, and wake the owner through an eventfd, of which a read
// is pending in the ring.
type ringReader struct {
	*counters
	makeRing func() (kernelRing, error) // called by the owner

	mu       sync.Mutex
	inbox    []job
	failed   []failedRead // reads that were retried with pread
	awakened bool         // the owner will look at the above without being woken
	closed   bool
	eventFD  int // written to under mu, so never after the owner closed it

	stopped  chan struct{} // closed by the owner, after closeErr is set
	closeErr error

	owner ringOwner
}

var _ reader = (*ringReader)(nil)

// failedRead is the result of a slot's second attempt.
type failedRead struct {
	slot uint16
	n    int
	err  error
}

func openUring(reason string) (*engine, error) {
	return openRinged(reason, func() (kernelRing, error) { return openRing(ringEntries) })
}

// openRinged starts an engine on the ring that makeRing returns.
func openRinged(reason string, makeRing func() (kernelRing, error)) (*engine, error) {
	c := &counters{}
	r := &ringReader{counters: c, makeRing: makeRing, stopped: make(chan struct{}), owner: ringOwner{counters: c}}
	started := make(chan error)
	go r.run(started)
	if err := <-started; err != nil {
		<-r.stopped
		return nil, err
	}
	return newEngine(string(ModeUring), reason, c, r, newPreadReader(c)), nil
}

func (r *ringReader) submit(jobs []job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inbox = append(r.inbox, jobs...)
	r.wake()
}

// wake makes the owner look at the inbox, unless it will do so anyway. The caller must hold r.mu.
func (r *ringReader) wake() {
	if !r.awakened {
		r.awakened = true
		r.signal()
	}
}

// signal completes the read of the eventfd. The caller must hold r.mu.
func (r *ringReader) signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		// It can't block: the counter is far from its limit.
		if _, err := unix.Write(r.eventFD, one[:]); err != unix.EINTR {
			return
		}
	}
}

func (r *ringReader) close() error {
	r.mu.Lock()
	r.closed = true
	r.wake()
	r.mu.Unlock()
	<-r.stopped
	return r.closeErr
}

// run is the owner. Its thread was made for the ring (the kernel allows no other to use it) and
// ends with it.
func (r *ringReader) run(started chan<- error) {
	defer close(r.stopped)
	runtime.LockOSThread()
	if err := r.open(); err != nil {
		started <- err
		return
	}
	started <- nil
	for {
		closed := r.takeJobs()
		r.fill()
		if closed && r.owner.idle() && !r.owner.armed {
			break
		}
		r.arm(closed)
		r.enter()
		r.reap()
	}
	r.closeErr = r.free()
}

func (r *ringReader) open() (err error) {
	o := &r.owner
	if o.ring, err = r.makeRing(); err != nil {
		return err
	}
	// Blocking: the ring's read waits in a poll, where a non-blocking descriptor would answer
	// EAGAIN. One wake-up is already there.
	if r.eventFD, err = unix.Eventfd(1, unix.EFD_CLOEXEC); err != nil {
		return errors.Join(fmt.Errorf("eventfd: %w", err), o.ring.close())
	}
	if o.wakeBuf, err = Map(8); err != nil {
		return errors.Join(err, unix.Close(r.eventFD), o.ring.close())
	}
	if err = r.firstWakeUp(); err != nil {
		return errors.Join(err, r.free())
	}
	o.free = make([]uint16, 0, ringSlots)
	for i := range uint16(ringSlots) {
		o.free = append(o.free, ringSlots-1-i)
	}
	return nil
}

// firstWakeUp checks that the ring can be used, and not only made, while falling back is still
// possible.
func (r *ringReader) firstWakeUp() error {
	o := &r.owner
	if !o.prepare(uint8(gouring.ReadCode), r.eventFD, 0, o.wakeBuf, wakeUserData) {
		return errors.New("a new ring has no room")
	}
	for {
		event, err := o.ring.SubmitAndWaitCQEvents(1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && event.Res < 0 {
			err = fmt.Errorf("read through a ring: %w", unix.Errno(-event.Res))
		}
		if err == nil {
			o.ring.AdvanceCQ(1)
		}
		return err
	}
}

func (r *ringReader) free() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.owner
	return errors.Join(o.unpin(), o.ring.close(), o.blocks.close(), unix.Close(r.eventFD), Unmap(o.wakeBuf))
}

// takeJobs takes the whole inbox, and reports whether nothing more will come. Jobs that come later
// must wake the owner.
func (r *ringReader) takeJobs() (closed bool) {
	o := &r.owner
	r.mu.Lock()
	o.taken, r.inbox = r.inbox, o.taken[:0]
	failed := r.failed
	r.failed = nil
	r.awakened = false
	closed = r.closed
	r.mu.Unlock()

	for _, f := range failed {
		r.finish(f.slot, f.n, f.err)
	}
	o.ending.complete(r.counters)
	o.waiting.push(o.taken...)
	clear(o.taken)
	return closed
}

// arm makes sure that the next enter returns: when something comes in, or at once if nothing can
// and nothing is in flight, which removes the wake-up from the ring.
func (r *ringReader) arm(closed bool) {
	o := &r.owner
	if closed && o.idle() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.signal()
		return
	}
	if !o.armed {
		o.armed = o.prepare(uint8(gouring.ReadCode), r.eventFD, 0, o.wakeBuf, wakeUserData)
	}
}
