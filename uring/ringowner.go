package uring

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	gouring "github.com/godzie44/go-uring/uring"
	"golang.org/x/sys/unix"
)

const (
	// ringEntries is the submission queue's size: one entry is for the wake-up, the others are for
	// reads. Queue depths above 128 were not faster.
	ringEntries = 128
	ringSlots   = ringEntries - 1

	// maxRingBytes bounds the total size of the reads in the kernel; a single one may be larger.
	// 16–32 MiB saturated the disks measured.
	maxRingBytes = 32 << 20

	// maxReadBytes bounds the size of one submission entry. The kernel reads less than 2 GiB at a
	// time.
	maxReadBytes = 1 << 30

	// flushEntries and flushBytes are when entries go to the kernel while others are still being
	// filled: the disk works meanwhile. Measured: a fifth more throughput at 4 KiB, twice as much
	// at 1 MiB.
	flushEntries = 4
	flushBytes   = 512 << 10

	// reapCopyBytes is how much is copied out of blocks before new reads are submitted: a disk that
	// waits for copies is idle. Measured: 3 to 5 % more throughput.
	reapCopyBytes = 128 << 10

	// wakeUserData marks the completion of the wake-up; others carry a slot.
	wakeUserData = 1 << 32
)

// kernelRing is what the owner needs of a ring.
type kernelRing interface {
	NextSQE() (*gouring.SQEntry, error)
	SubmitAndWaitCQEvents(n uint32) (*gouring.CQEvent, error)
	PeekCQEventBatch(to []*gouring.CQEvent) int
	AdvanceCQ(n uint32)
	RegisterBuffers(buffers []syscall.Iovec) error
	UnRegisterBuffers() error
	close() error
}

// ringOwner is the state that only the owner's goroutine uses.
type ringOwner struct {
	*counters
	ring    kernelRing
	wakeBuf []byte // off-heap: the kernel writes the eventfd's counter here
	armed   bool   // a read of the eventfd is pending
	waiting queue[job]
	slots   [ringSlots]slot
	free    []uint16 // numbers of the free slots
	again   []uint16 // slots whose read is to be submitted again
	bytes   int      // total size of the reads in slots
	blocks  blocks
	pinned  pinned // whether blocks are registered with the ring
	taken   []job
	ending  ending // requests of slots, until the end of a reap
	events  [2 * ringEntries]*gouring.CQEvent
	copied  int // bytes copied out of blocks by this reap

	unflushed      int // entries filled since the last flush
	unflushedBytes int
}

// pinned is the state of registering the blocks. Registering pins them, which saves the kernel
// looking up their pages for each read; the limit on locked memory (ulimit -l) may forbid it.
type pinned uint8

const (
	pinNotTried pinned = iota
	pinDone
	pinRefused
)

// opReadFixed is IORING_OP_READ_FIXED; the library has no name for it.
const opReadFixed = 4

// slot keeps a request, and so its buffer, from submission to completion.
type slot struct {
	job
	size  int    // counted in ringOwner.bytes
	again int    // EINTR or EAGAIN in a row
	block []byte // of a direct read that is not aligned
	part  part   // read into block
}

// fill fills the submission queue as far as there is room.
func (r *ringReader) fill() {
	o := &r.owner
	for len(o.again) > 0 && o.prepareRead(o.again[len(o.again)-1]) {
		o.again = o.again[:len(o.again)-1]
	}
	for o.waiting.len() > 0 && len(o.free) > 0 {
		j := o.waiting.first()
		if o.bytes > 0 && o.bytes+len(j.rest()) > maxRingBytes {
			break
		}
		if err := j.request.begin(); err != nil {
			r.complete(o.waiting.pop().request, 0, err)
			continue
		}
		number := o.free[len(o.free)-1]
		o.slots[number] = slot{job: *j, size: len(j.rest())}
		if !o.prepareRead(number) {
			o.slots[number] = slot{}
			break
		}
		o.free = o.free[:len(o.free)-1]
		o.bytes += o.slots[number].size
		o.waiting.pop()
	}
}

// idle reports whether the owner has no requests.
func (o *ringOwner) idle() bool { return o.waiting.len() == 0 && len(o.free) == ringSlots }

// prepareRead queues a read of what is missing in a slot's buffer. It returns false if the queue is
// full, or all blocks are in use.
func (o *ringOwner) prepareRead(number uint16) bool {
	s := &o.slots[number]
	if s.direct {
		d := s.request.File.direct.Load()
		switch {
		case s.request.File.isRefused():
			s.direct = false
		case d.straight(s.off(), s.rest()) == 0:
			return o.prepareBounced(d, number)
		default:
			rest := s.rest()
			rest = rest[:d.straight(s.off(), rest)]
			return o.prepareFlushing(uint8(gouring.ReadCode), d.fd, s.off(), rest[:min(len(rest), maxReadBytes)], number)
		}
	}
	rest := s.rest()
	return o.prepareFlushing(uint8(gouring.ReadCode), s.request.fd(), s.off(), rest[:min(len(rest), maxReadBytes)], number)
}

// prepareBounced queues a direct read into a block.
func (o *ringOwner) prepareBounced(d *directFile, number uint16) bool {
	s := &o.slots[number]
	var missing bool
	if s.block, missing = o.blocks.take(); missing {
		s.direct = false
		return o.prepareRead(number)
	}
	if s.block == nil {
		return false
	}
	s.part = directPart(d, &s.job)
	if !o.prepareFlushing(o.blockOp(), d.fd, s.part.off, s.block[:s.part.size], number) {
		o.dropBlock(s)
		return false
	}
	return true
}

// blockOp is the operation that reads into a block. Its first call registers the blocks.
func (o *ringOwner) blockOp() uint8 {
	if o.pinned == pinNotTried {
		all := syscall.Iovec{Base: unsafe.SliceData(o.blocks.memory)}
		all.SetLen(len(o.blocks.memory))
		o.pinned = pinDone
		err := o.ring.RegisterBuffers([]syscall.Iovec{all})
		if err != nil {
			o.pinned = pinRefused
			err = explain(err)
		}
		o.registration.Store(&registration{err})
	}
	if o.pinned == pinDone {
		return opReadFixed // of registered buffer 0, the default in a new entry
	}
	return uint8(gouring.ReadCode)
}

// unpin undoes the registration, if there is one.
func (o *ringOwner) unpin() error {
	if o.pinned != pinDone {
		return nil
	}
	return o.ring.UnRegisterBuffers()
}

// dropBlock gives a slot's block back.
func (o *ringOwner) dropBlock(s *slot) {
	o.blocks.give(s.block)
	s.block = nil
}

// prepareFlushing is prepare for a slot's read. It also lets the kernel start with what is queued
// if that is enough and more is to be queued; after the last read comes enter.
func (o *ringOwner) prepareFlushing(op uint8, fd int, off int64, buf []byte, number uint16) bool {
	if !o.prepare(op, fd, off, buf, uint64(number)) {
		return false
	}
	o.unflushed++
	o.unflushedBytes += len(buf)
	more := o.waiting.len()+len(o.again) > 1 // besides this one
	if more && (o.unflushed >= flushEntries || o.unflushedBytes >= flushBytes) {
		o.unflushed, o.unflushedBytes = 0, 0
		// What the kernel does not take now stays queued for enter, which meets the same error if
		// it lasts. Without waiting, EAGAIN also means that nothing has completed.
		_, _ = o.ring.SubmitAndWaitCQEvents(0)
	}
	return true
}

// prepare fills one submission entry, if the queue has room.
func (o *ringOwner) prepare(op uint8, fd int, off int64, buf []byte, userData uint64) bool {
	entry, err := o.ring.NextSQE()
	if err != nil {
		return false
	}
	// Whole, because the library hands out entries with their old contents.
	*entry = gouring.SQEntry{
		OpCode:   op,
		Fd:       int32(fd),
		Off:      uint64(off),
		Addr:     uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))),
		Len:      uint32(len(buf)),
		UserData: userData,
	}
	return true
}

// enter submits, and waits for at least one completion: the wake-up's if no other. With
// DEFER_TASKRUN, completions only appear in an enter that waits.
func (r *ringReader) enter() {
	o := &r.owner
	o.unflushed, o.unflushedBytes = 0, 0
	_, err := o.ring.SubmitAndWaitCQEvents(1)
	switch {
	case err == nil, errors.Is(err, unix.EINTR):
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EBUSY), errors.Is(err, unix.ENOMEM):
		// The kernel has no memory for more reads now; what was not submitted stays queued.
		time.Sleep(time.Millisecond)
	default:
		// The kernel may still write to buffers, so it is impossible to continue.
		panic(fmt.Sprintf("uring: the ring can't be used any more: %v", err))
	}
	r.mu.Lock()
	r.awakened = true // takeJobs comes after reap, whatever reap submits
	r.mu.Unlock()
}

// reap takes the available completions, or some of them: the others make the next enter return at
// once.
func (r *ringReader) reap() {
	o := &r.owner
	n := o.ring.PeekCQEventBatch(o.events[:])
	reaped := 0
	for o.copied = 0; reaped < n && o.copied < reapCopyBytes; reaped++ {
		event := o.events[reaped]
		if event.UserData == wakeUserData {
			o.armed = false
			continue
		}
		r.completed(uint16(event.UserData), int(event.Res))
	}
	clear(o.events[:n])
	if reaped > 0 {
		o.ring.AdvanceCQ(uint32(reaped))
	}
	o.ending.complete(r.counters)
}

// completed handles the kernel's answer to a slot's read.
func (r *ringReader) completed(number uint16, result int) {
	o := &r.owner
	s := &o.slots[number]
	if s.block != nil {
		early := false
		if result > 0 {
			result = s.part.deliver(&s.job, s.block, result)
			o.copied += result
			early = result == 0 && !endsBefore(s.request.fd(), s.job.off())
		}
		o.dropBlock(s) // waiting slots hold no blocks, so those in flight bring them back
		if early {
			// It ended before the first wanted byte.
			s.direct = false
			o.again = append(o.again, number)
			return
		}
	}
	errno := unix.Errno(max(0, -result))
	switch {
	case result > 0:
		s.n += result
		s.again = 0
		if s.n == len(s.request.Buf) {
			r.finish(number, s.n, nil)
			return
		}
		o.again = append(o.again, number)
	case result == 0: // the file ends here
		r.finish(number, s.n, nil)
	case s.direct && refusesDirect(errno):
		r.refuse(s.request.File, refusedAtRead)
		s.direct = false
		o.again = append(o.again, number)
	case (errno == unix.EINTR || errno == unix.EAGAIN) && s.again < maxAgain:
		s.again++
		o.again = append(o.again, number)
	case errno == unix.EIO || errno == unix.EINTR || errno == unix.EAGAIN:
		s.direct = false
		r.tryOnceMore(number)
	default:
		r.finish(number, s.n, errno)
	}
}

// tryOnceMore reads with pread what the ring could not, in a separate goroutine because a failing
// disk may take minutes to return an error. The slot stays taken, so there are at most as many as
// slots, and the owner waits for each.
func (r *ringReader) tryOnceMore(number uint16) {
	j := r.owner.slots[number].job
	go func() {
		more, err := pread(j.request.fd(), j.rest(), j.off())
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failed = append(r.failed, failedRead{slot: number, n: j.n + more, err: err})
		r.wake()
	}()
}

// finish frees a slot; its request completes with ending.
func (r *ringReader) finish(number uint16, n int, err error) {
	o := &r.owner
	s := &o.slots[number]
	request := s.request
	if s.direct && err == nil {
		r.direct.Add(1)
	}
	o.bytes -= s.size
	*s = slot{}
	o.free = append(o.free, number)
	o.ending.add(request, n, err)
}
