package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"golang.org/x/sys/unix"
)

const (
	// ringEntries is the submission queue's size: one entry is the wake-up's,
	// the others are reads. Queue depths above 128 were not faster.
	ringEntries = 128
	ringSlots   = ringEntries - 1

	// maxRingBytes bounds what the reads in the kernel ask for together; a
	// single one may be larger. 16–32 MiB saturated the disks measured.
	maxRingBytes = 32 << 20

	// maxReadBytes is what one submission entry asks for at most. The kernel
	// reads less than 2 GiB at a time.
	maxReadBytes = 1 << 30

	// wakeUserData marks the completion of the wake-up; others carry a slot.
	wakeUserData = 1 << 32
)

// ringEngine reads through one ring, which one goroutine owns: it alone fills,
// submits and reaps. Submitters leave requests in an inbox, and wake the owner
// through an eventfd that the ring has a read armed on.
type ringEngine struct {
	reason string
	counters

	mu       sync.Mutex
	inbox    []*Request
	failed   []failedRead // reads that were tried once more with pread
	awakened bool         // the owner will look at the above without being told
	closed   bool
	eventFD  int // written to under mu, so never after the owner closed it

	stopped  chan struct{} // closed by the owner, after closeErr is set
	closeErr error

	owner ringOwner
}

var _ Engine = (*ringEngine)(nil)

// ringOwner is what only the owner's goroutine touches.
type ringOwner struct {
	ring    *ring
	wakeBuf []byte // off-heap: the kernel writes the eventfd's counter here
	armed   bool   // a read of the eventfd is under way
	waiting queue
	slots   [ringSlots]slot
	free    []uint16 // numbers of the free slots
	again   []uint16 // slots whose read is to be submitted once more
	bytes   int      // that the reads in slots ask for
	taken   []*Request
	events  [2 * ringEntries]*gouring.CQEvent
}

// slot keeps a request, and so its buffer, from submission to completion.
type slot struct {
	request *Request
	n       int // bytes read so far
	again   int // EINTR or EAGAIN in a row
}

// failedRead is the outcome of a slot's second attempt.
type failedRead struct {
	slot uint16
	n    int
	err  error
}

func openUring(reason string) (*ringEngine, error) {
	e := &ringEngine{reason: reason, stopped: make(chan struct{})}
	started := make(chan error)
	go e.run(started)
	if err := <-started; err != nil {
		<-e.stopped
		return nil, err
	}
	return e, nil
}

func (e *ringEngine) Submit(requests []*Request) {
	if len(requests) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		refuse(requests)
		return
	}
	e.submitted(requests)
	e.inbox = append(e.inbox, requests...)
	e.wake()
}

// wake makes the owner look at the inbox, if it does not do so anyway.
// e.mu is held.
func (e *ringEngine) wake() {
	if !e.awakened {
		e.awakened = true
		e.signal()
	}
}

// signal completes the read of the eventfd. e.mu is held.
func (e *ringEngine) signal() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	for {
		// It can't block: the counter is far from its limit.
		if _, err := unix.Write(e.eventFD, one); err != unix.EINTR {
			return
		}
	}
}

func (e *ringEngine) Status() Status { return e.status(string(ModeUring), e.reason) }

func (e *ringEngine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.wake()
	e.mu.Unlock()
	<-e.stopped
	return e.closeErr
}

// run is the owner. Its thread was made for the ring (the kernel allows no
// other to use it) and ends with it.
func (e *ringEngine) run(started chan<- error) {
	defer close(e.stopped)
	runtime.LockOSThread()
	if err := e.open(); err != nil {
		started <- err
		return
	}
	started <- nil
	for e.takeRequests() {
		e.fill()
		e.enter()
		e.reap()
	}
	e.closeErr = e.free()
}

func (e *ringEngine) open() (err error) {
	o := &e.owner
	if o.ring, err = openRing(ringEntries); err != nil {
		return err
	}
	// Blocking: the ring's read waits in a poll, where a non-blocking
	// descriptor would answer EAGAIN. One wake-up is there already.
	if e.eventFD, err = unix.Eventfd(1, unix.EFD_CLOEXEC); err != nil {
		return errors.Join(fmt.Errorf("eventfd: %w", err), o.ring.close())
	}
	if o.wakeBuf, err = Map(8); err != nil {
		return errors.Join(err, unix.Close(e.eventFD), o.ring.close())
	}
	if err = e.firstWakeUp(); err != nil {
		return errors.Join(err, e.free())
	}
	o.free = make([]uint16, 0, ringSlots)
	for i := range uint16(ringSlots) {
		o.free = append(o.free, ringSlots-1-i)
	}
	return nil
}

// firstWakeUp shows that the ring can be used, and not only made, while going
// back is still possible.
func (e *ringEngine) firstWakeUp() error {
	o := &e.owner
	if !o.prepare(e.eventFD, 0, o.wakeBuf, wakeUserData) {
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

func (e *ringEngine) free() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(e.owner.ring.close(), unix.Close(e.eventFD), Unmap(e.owner.wakeBuf))
}

// takeRequests takes the inbox whole, and says whether there is anything left
// to do. What comes into the inbox from here on must wake the owner.
func (e *ringEngine) takeRequests() bool {
	o := &e.owner
	e.mu.Lock()
	o.taken, e.inbox = e.inbox, o.taken[:0]
	failed := e.failed
	e.failed = nil
	e.awakened = false
	finished := e.closed && len(o.taken) == 0 && len(failed) == 0 && o.waiting.len() == 0 && len(o.free) == ringSlots
	if finished && o.armed {
		e.signal() // the wake-up is the last one in the ring
	}
	e.mu.Unlock()

	for _, f := range failed {
		e.finish(f.slot, f.n, f.err)
	}
	o.waiting.push(o.taken)
	clear(o.taken)
	return !finished || o.armed
}

// fill puts into the submission queue what there is room for.
func (e *ringEngine) fill() {
	o := &e.owner
	for len(o.again) > 0 && o.prepareRead(o.again[len(o.again)-1]) {
		o.again = o.again[:len(o.again)-1]
	}
	for o.waiting.len() > 0 && len(o.free) > 0 {
		r := o.waiting.first()
		if o.bytes > 0 && o.bytes+len(r.Buf) > maxRingBytes {
			break
		}
		if err := r.check(); err != nil {
			e.complete(o.waiting.pop(), 0, err)
			continue
		}
		number := o.free[len(o.free)-1]
		o.slots[number] = slot{request: r}
		if !o.prepareRead(number) {
			o.slots[number] = slot{}
			break
		}
		o.free = o.free[:len(o.free)-1]
		o.bytes += len(r.Buf)
		o.waiting.pop()
	}
	if !o.armed {
		o.armed = o.prepare(e.eventFD, 0, o.wakeBuf, wakeUserData)
	}
}

// prepareRead queues the read of what is missing in a slot's buffer.
func (o *ringOwner) prepareRead(number uint16) bool {
	s := &o.slots[number]
	r := s.request
	rest := r.Buf[s.n:]
	return o.prepare(r.FD, r.OffsetBytes+int64(s.n), rest[:min(len(rest), maxReadBytes)], uint64(number))
}

// prepare fills one submission entry, if the queue has room.
func (o *ringOwner) prepare(fd int, off int64, buf []byte, userData uint64) bool {
	entry, err := o.ring.NextSQE()
	if err != nil {
		return false
	}
	// Whole, because the library hands out entries with their old contents.
	*entry = gouring.SQEntry{
		OpCode:   uint8(gouring.ReadCode),
		Fd:       int32(fd),
		Off:      uint64(off),
		Addr:     uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))),
		Len:      uint32(len(buf)),
		UserData: userData,
	}
	return true
}

// enter submits, and waits for at least one completion: the wake-up's if no
// other. Under DEFER_TASKRUN completions appear only to a waiting enter.
func (e *ringEngine) enter() {
	_, err := e.owner.ring.SubmitAndWaitCQEvents(1)
	switch {
	case err == nil, errors.Is(err, unix.EINTR):
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOMEM):
		// The kernel has no memory for more reads now; what was not
		// submitted stays queued.
		time.Sleep(time.Millisecond)
	default:
		// The kernel may still write to buffers: there is no way to go on.
		panic(fmt.Sprintf("uring: the ring can't be used any more: %v", err))
	}
	e.mu.Lock()
	e.awakened = true // takeRequests comes after reap, whatever that submits
	e.mu.Unlock()
}

// reap takes the completions that there are.
func (e *ringEngine) reap() {
	o := &e.owner
	n := o.ring.PeekCQEventBatch(o.events[:])
	for i, event := range o.events[:n] {
		userData, result := event.UserData, event.Res
		o.events[i] = nil
		if userData == wakeUserData {
			o.armed = false
			continue
		}
		e.completed(uint16(userData), int(result))
	}
	if n > 0 {
		o.ring.AdvanceCQ(uint32(n))
	}
}

// completed handles what the kernel answered to a slot's read.
func (e *ringEngine) completed(number uint16, result int) {
	o := &e.owner
	s := &o.slots[number]
	switch {
	case result > 0:
		s.n += result
		s.again = 0
		if s.n == len(s.request.Buf) {
			e.finish(number, s.n, nil)
			return
		}
		o.again = append(o.again, number)
	case result == 0: // the file ends here
		e.finish(number, s.n, nil)
	case (result == -int(unix.EINTR) || result == -int(unix.EAGAIN)) && s.again < maxAgain:
		s.again++
		o.again = append(o.again, number)
	case result == -int(unix.EIO) || result == -int(unix.EINTR) || result == -int(unix.EAGAIN):
		e.tryOnceMore(number)
	default:
		e.finish(number, s.n, unix.Errno(-result))
	}
}

// tryOnceMore reads with pread what the ring could not, in a goroutine of its
// own because a failing disk may take minutes to say so. The slot stays taken,
// so there are at most as many as slots, and the owner waits for each.
func (e *ringEngine) tryOnceMore(number uint16) {
	s := &e.owner.slots[number]
	r, n := s.request, s.n
	go func() {
		more, err := pread(r.FD, r.Buf[n:], r.OffsetBytes+int64(n))
		e.mu.Lock()
		defer e.mu.Unlock()
		e.failed = append(e.failed, failedRead{slot: number, n: n + more, err: err})
		e.wake()
	}()
}

// finish frees a slot and completes its request.
func (e *ringEngine) finish(number uint16, n int, err error) {
	o := &e.owner
	r := o.slots[number].request
	o.slots[number] = slot{}
	o.free = append(o.free, number)
	o.bytes -= len(r.Buf)
	e.complete(r, n, err)
}
