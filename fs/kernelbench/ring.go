package kernelbench

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of include/uapi/linux/fuse.h: commands, and struct fuse_uring_req_header, whose parts are a request's or a reply's
// header, the operation's own, and what ties a reply to its request.
const (
	ringRegister = 1
	ringCommit   = 2

	ringHeaderBytes = 288
	ringOperation   = 128
	ringCommitID    = 256 + 8
	ringPayload     = 256 + 16
)

// Of include/uapi/linux/io_uring.h.
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

// ringEntries is how many requests of a processor are under way at a time.
const ringEntries = 4

// ring is an io_uring of one thread.
type ring struct {
	fd                             int
	submitTail, doneHead, doneTail *uint32
	submitMask, doneMask           uint32
	order                          []uint32
	submissions                    [][submissionBytes]byte
	done                           []completion
	queued                         int
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
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	r := &ring{fd: int(fd)}
	submits, completes := le.Uint32(p[:]), le.Uint32(p[4:])
	sq, cq := p[40:], p[80:] // offsets of what is where
	size := max(le.Uint32(sq[24:])+4*submits, le.Uint32(cq[20:])+completionBytes*completes)
	m, err := r.mapped(0, int(size))
	if err != nil {
		return nil, err
	}
	s, err := r.mapped(submissionsAt, int(submits)*submissionBytes)
	if err != nil {
		return nil, err
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

func (r *ring) close() {
	_ = unix.Close(r.fd)
	for _, m := range r.memory {
		_ = unix.Munmap(m)
	}
}

// entry is a place for a request, which becomes its reply.
type entry struct {
	header, payload []byte
	parts           [2]unix.Iovec
}

// queue puts a command for an entry into the ring.
func (r *ring) queue(fd int, command uint32, e *entry, number, processor int, commit uint64) {
	i := *r.submitTail & r.submitMask
	s := r.submissions[i][:]
	clear(s)
	s[0] = opCommand
	le.PutUint32(s[4:], uint32(fd))
	le.PutUint32(s[8:], command)
	if command == ringRegister {
		le.PutUint64(s[16:], uint64(uintptr(unsafe.Pointer(&e.parts))))
		le.PutUint32(s[24:], uint32(len(e.parts)))
	}
	le.PutUint64(s[32:], uint64(number))
	le.PutUint64(s[48+8:], commit) // struct fuse_uring_cmd_req
	le.PutUint16(s[48+16:], uint16(processor))
	r.order[i] = i
	*r.submitTail++ // only this thread looks at it, in io_uring_enter
	r.queued++
}

// enter hands over what is queued and waits for something to be done.
func (r *ring) enter() error {
	for {
		_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.queued), 1, enterGetEvents, 0, 0)
		if errno == 0 {
			r.queued = 0
			return nil
		} else if errno != unix.EINTR {
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// ring answers what clients on one processor ask for, until the file system is unmounted.
func (s *server) ring(processor int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set unix.CPUSet
	set.Set(processor)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("stay on processor %d: %w", processor, err)
	}
	r, err := newRing()
	if err != nil {
		return err
	}
	defer r.close()
	memory, err := unix.Mmap(-1, 0, ringEntries*(pageBytes+s.pages*pageBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(memory) }()
	entries := make([]entry, ringEntries)
	for i := range entries {
		e := &entries[i]
		e.header, memory = memory[:pageBytes], memory[pageBytes:]
		e.payload, memory = memory[:s.pages*pageBytes], memory[s.pages*pageBytes:]
		e.parts = [2]unix.Iovec{{Base: &e.header[0], Len: ringHeaderBytes}, {Base: &e.payload[0], Len: uint64(len(e.payload))}}
		r.queue(s.fd, ringRegister, e, i, processor, 0)
	}
	for {
		if err := r.enter(); err != nil {
			return err
		}
		for ; *r.doneHead != *r.doneTail; *r.doneHead++ {
			c := r.done[*r.doneHead&r.doneMask]
			switch errno := syscall.Errno(-c.res); {
			case c.res >= 0:
			case errno == unix.ENOTCONN || errno == unix.ECANCELED:
				return nil // it is unmounted
			default:
				return fmt.Errorf("requests of processor %d by io_uring: %w", processor, errno)
			}
			e := &entries[c.user]
			h := e.header
			unique, commit := le.Uint64(h[8:]), le.Uint64(h[ringCommitID:])
			n, data, errno := s.reply(le.Uint32(h[4:]), le.Uint64(h[16:]), h[ringOperation:], e.payload)
			copy(e.payload, data)
			putHeader(h, n, errno, unique)
			le.PutUint32(h[ringPayload:], uint32(n))
			r.queue(s.fd, ringCommit, e, int(c.user), processor, commit)
		}
	}
}
