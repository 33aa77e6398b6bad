package rings

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's structures have the machine's byte order; all machines that this is built for are
// little-endian.
var le = binary.LittleEndian

// From include/uapi/linux/io_uring.h.
const (
	setupSQE128       = 1 << 10
	setupSingleIssuer = 1 << 12
	setupDeferTaskrun = 1 << 13
	opCommand         = 46
	enterGetEvents    = 1
	submissionsAt     = 0x10000000
	submissionBytes   = 128
	completionBytes   = 16
)

// ring is an io_uring with room for one command, which belongs to one thread.
//
// It is not go-uring's, which does not support commands, with their submissions of 128 bytes.
type ring struct {
	fd                             int
	submitTail, doneHead, doneTail *uint32
	submitMask, doneMask           uint32
	order                          []uint32
	submissions                    [][submissionBytes]byte
	done                           []completion
	queued                         int // 1 if a command has to be submitted
	memory                         [][]byte
}

type completion struct {
	user  uint64
	res   int32
	flags uint32
}

func newRing() (*ring, error) {
	var p [120]byte // struct io_uring_params
	le.PutUint32(p[8:], setupSQE128|setupSingleIssuer|setupDeferTaskrun)
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{fd: int(fd)}
	submits, completes := le.Uint32(p[:]), le.Uint32(p[4:])
	sq, cq := p[40:], p[80:] // offsets of the fields
	size := max(le.Uint32(sq[24:])+4*submits, le.Uint32(cq[20:])+completionBytes*completes)
	m, err := r.mapped(0, int(size))
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	s, err := r.mapped(submissionsAt, int(submits)*submissionBytes)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	word := func(offset []byte) *uint32 { return (*uint32)(unsafe.Pointer(&m[le.Uint32(offset)])) }
	r.submitTail, r.submitMask = word(sq[4:]), *word(sq[8:])
	r.order = unsafe.Slice(word(sq[24:]), submits)
	r.doneHead, r.doneTail, r.doneMask = word(cq[0:]), word(cq[4:]), *word(cq[8:])
	r.done = unsafe.Slice((*completion)(unsafe.Pointer(&m[le.Uint32(cq[20:])])), completes)
	r.submissions = unsafe.Slice((*[submissionBytes]byte)(unsafe.Pointer(&s[0])), submits)
	return r, nil
}

func (r *ring) mapped(at int64, bytes int) ([]byte, error) {
	m, err := unix.Mmap(r.fd, at, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map an io_uring: %w", err)
	}
	r.memory = append(r.memory, m)
	return m, nil
}

func (r *ring) close() error {
	err := unix.Close(r.fd)
	for _, m := range r.memory {
		err = errors.Join(err, unix.Munmap(m))
	}
	return err
}

// queue queues a command to a descriptor; fill writes the rest of it.
func (r *ring) queue(fd int, command uint32, fill func(submission []byte)) {
	i := *r.submitTail & r.submitMask
	s := r.submissions[i][:]
	clear(s)
	s[0] = opCommand
	le.PutUint32(s[4:], uint32(fd))
	le.PutUint32(s[8:], command)
	fill(s)
	r.order[i] = i
	atomic.StoreUint32(r.submitTail, *r.submitTail+1)
	r.queued = 1
}

// enter submits what is queued, and waits until so many commands are done. It may return earlier.
func (r *ring) enter(wait int) error {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.queued), uintptr(wait), enterGetEvents, 0, 0)
		switch errno {
		case 0:
			r.queued -= int(n)
			return nil
		case unix.EINTR, unix.EAGAIN, unix.EBUSY:
		default:
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// peek returns the result of a finished command.
func (r *ring) peek() (res int32, done bool) {
	head := *r.doneHead
	if head == atomic.LoadUint32(r.doneTail) {
		return 0, false
	}
	return r.done[head&r.doneMask].res, true
}

// take is peek, but also removes the result.
func (r *ring) take() (res int32, done bool) {
	if res, done = r.peek(); done {
		atomic.StoreUint32(r.doneHead, *r.doneHead+1)
	}
	return res, done
}
