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

// From include/uapi/linux/fuse.h: struct fuse_uring_req_header, which consists of the header of a
// request or reply, the operation's own structure, and the fields that tie a reply to its request.
const (
	inHeaderBytes  = 40 // struct fuse_in_header
	outHeaderBytes = 16 // struct fuse_out_header

	headerBytes      = 288
	operationAt      = 128
	operationBytes   = 128
	commitIDAt       = 256 + 8
	payloadBytesAt   = 256 + 16
	requestLengthAt  = 0 // in fuse_in_header
	requestOpcodeAt  = 4
	requestUniqueAt  = 8
	pageBytes        = 4096
	interruptOpcode  = 36
	initOpcode       = 26
	interruptInBytes = 8
)

// Request is one request, and becomes its reply. Its memory belongs to the kernel again when its
// Handler has returned.
type Request struct {
	header  []byte // struct fuse_uring_req_header
	payload []byte
	memory  []byte // contains both
	parts   [2]unix.Iovec
	copied  []byte // copy of the request's payload
}

// newRequest makes a request with room for replies of payloadBytes, which are not touched before
// they are used.
func newRequest(payloadBytes int) (*Request, error) {
	payloadBytes = (payloadBytes + pageBytes - 1) &^ (pageBytes - 1)
	m, err := unix.Mmap(-1, 0, pageBytes+payloadBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memory for requests: %w", err)
	}
	r := &Request{memory: m, header: m[:headerBytes], payload: m[pageBytes:]}
	r.parts = [2]unix.Iovec{{Base: &r.header[0], Len: headerBytes}, {Base: &r.payload[0], Len: uint64(len(r.payload))}}
	return r, nil
}

func (r *Request) free() error { return unix.Munmap(r.memory) }

// Opcode is the operation, as in include/uapi/linux/fuse.h.
func (r *Request) Opcode() uint32 { return le.Uint32(r.header[requestOpcodeAt:]) }

func (r *Request) unique() uint64   { return le.Uint64(r.header[requestUniqueAt:]) }
func (r *Request) commitID() uint64 { return le.Uint64(r.header[commitIDAt:]) }

// In returns the request as it would come from /dev/fuse: struct fuse_in_header, the operation's
// structure, and the rest, in up to three pieces. Except for the header, they do not change while
// the reply is written.
func (r *Request) In() ([][]byte, error) {
	length, rest := int(le.Uint32(r.header[requestLengthAt:])), int(le.Uint32(r.header[payloadBytesAt:]))
	operation := length - inHeaderBytes - rest
	if operation < 0 || operation > operationBytes || rest > len(r.payload) {
		return nil, fmt.Errorf("a request of %d bytes, of which %d follow the operation, is none", length, rest)
	}
	if cap(r.copied) > keptSmall && rest <= keptSmall {
		r.copied = nil
	}
	r.copied = append(r.copied[:0], r.payload[:rest]...)
	return [][]byte{r.header[:inHeaderBytes], r.header[operationAt:][:operation], r.copied}, nil
}

// cameBytes is how much of the payload the request took.
func (r *Request) cameBytes() int64 { return int64(len(r.copied)) }

// Out is where to write the reply: struct fuse_out_header, and what follows it.
func (r *Request) Out() [][]byte { return [][]byte{r.header[:outHeaderBytes], r.payload} }

// Fail makes the reply an error.
func (r *Request) Fail(errno unix.Errno) (replyBytes int) {
	unique := r.unique()
	le.PutUint32(r.header, outHeaderBytes)
	le.PutUint32(r.header[4:], uint32(-int32(errno)))
	le.PutUint64(r.header[8:], unique)
	return outHeaderBytes
}

// finish sets the length of the reply.
func (r *Request) finish(replyBytes int) {
	le.PutUint32(r.header[payloadBytesAt:], uint32(replyBytes-outHeaderBytes))
}

// drop gives the memory of the payload back.
func (r *Request) drop() error { return unix.Madvise(r.payload, unix.MADV_DONTNEED) }
