package stream

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/fetch"
)

// Final gives the slices of a brief reply at the last moment before they are handed
// to the kernel. Those of mapped files stay what they are while leases are held,
// which a process that stands still for long loses: where that may be so they are
// copied, and the files are looked at. If these have changed, Final gives memory
// that can't be read: the system call that is given it fails, and so does the read
// that it answers. Called again it gives the same.
func (r *Reply) Final() [][]byte {
	if r.copied != nil || r.lost != nil || r.stands() {
		return r.Slices
	}
	n := r.Len()
	r.copied = r.buffers.get(n)
	gone := fetch.Faulted(func() {
		for _, s := range r.Slices {
			r.copied = append(r.copied, s...)
		}
	})
	bytes := r.copied
	if r.lost = r.check(gone); r.lost != nil {
		bytes = unreadable()[:n]
	}
	clear(r.Slices)
	r.Slices = append(r.Slices[:0], bytes)
	return r.Slices
}

// Sent is called once the slices that Final gave have been handed over, before
// Release. An error says that these bytes may not have been those that were
// indexed, or that there were none to give. The first takes two things: the
// process stood still in the moment behind Final for so long that its leases were
// taken, and the file is not any more what it was.
func (r *Reply) Sent() error {
	switch {
	case r.lost != nil:
		return r.lost
	case r.copied != nil || r.stands():
		return nil
	}
	if err := r.check(false); err != nil {
		return fmt.Errorf("these bytes, sent before, may be wrong: the process stood still while they were sent: %w", err)
	}
	return nil
}

// stands says whether the slices are certain to be what they were when they were
// checked.
func (r *Reply) stands() bool {
	for _, l := range r.loans[:r.inUse] {
		if !l.Stands() {
			return false
		}
	}
	return true
}

// check looks at the files of what is lent. fault says that some of it could not be
// read.
func (r *Reply) check(fault bool) error {
	for _, l := range r.loans[:r.inUse] {
		if err := l.Check(); err != nil {
			return err
		}
	}
	if !fault {
		return nil
	}
	for _, l := range r.loans[:r.inUse] {
		if l.Mapped() {
			return l.Fault()
		}
	}
	return nil
}

// unreadable is address space that nothing can be read from.
var unreadable = sync.OnceValue(func() []byte {
	b, err := unix.Mmap(-1, 0, MaxReadBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("reserve 1 MiB of address space: %v", err))
	}
	return b
})
