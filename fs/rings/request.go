package rings

import (
	"fmt"

	"golang.org/x/sys/unix"
)

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
