package kernelbench

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

var le = binary.LittleEndian

const (
	inHeaderBytes  = 40 // struct fuse_in_header
	outHeaderBytes = 16 // struct fuse_out_header
	pageBytes      = 4096
	fileBytes      = 1 << 40
	rootNode       = 1
	fileNode       = 2
	forever        = 3600 // seconds that the kernel may cache replies
)

// Operations of include/uapi/linux/fuse.h.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opInterrupt   = 36
	opBatchForget = 42
)

// Flags of INIT.
const (
	initAsyncRead = 1 << 0
	initMaxPages  = 1 << 22
	initExtended  = 1 << 30
	initUring     = 1 << 41
)

// answers are the server's replies.
type answers struct {
	pages   int  // bound on a request
	uring   bool // io_uring is requested
	offered bool // the kernel has offered io_uring; known after INIT
	data    []byte
}

// reply writes what follows the header of a reply to dst, and returns its length. For READ it
// returns the bytes instead, without copying them.
func (a *answers) reply(op uint32, node uint64, in, dst []byte) (n int, data []byte, errno syscall.Errno) {
	clear(dst[:128])
	switch op {
	case opInit:
		return a.init(in, dst), nil, 0
	case opLookup:
		le.PutUint64(dst, fileNode)
		le.PutUint64(dst[16:], forever)
		le.PutUint64(dst[24:], forever)
		putAttributes(dst[40:], fileNode)
		return 128, nil, 0
	case opGetattr:
		le.PutUint64(dst, forever)
		putAttributes(dst[16:], node)
		return 104, nil, 0
	case opOpen:
		le.PutUint32(dst[8:], 1) // FOPEN_DIRECT_IO
		return 16, nil, 0
	case opRead:
		size := int(le.Uint32(in[16:]))
		at := int(le.Uint64(in[8:]) % uint64(len(a.data)-size) &^ (pageBytes - 1))
		return size, a.data[at:][:size], 0
	case opRelease, opFlush:
		return 0, nil, 0
	}
	return 0, nil, unix.ENOSYS
}

func (a *answers) init(in, dst []byte) int {
	offers := uint64(le.Uint32(in[12:]))
	if offers&initExtended != 0 {
		offers |= uint64(le.Uint32(in[16:])) << 32
	}
	takes := uint64(initAsyncRead | initMaxPages | initExtended)
	if a.uring {
		a.offered = offers&initUring != 0
		takes |= initUring
	}
	takes &= offers
	le.PutUint32(dst, 7)
	le.PutUint32(dst[4:], min(le.Uint32(in[4:]), 40))
	le.PutUint32(dst[8:], le.Uint32(in[8:]))
	le.PutUint32(dst[12:], uint32(takes))
	le.PutUint16(dst[16:], 64) // background requests
	le.PutUint16(dst[18:], 48)
	le.PutUint32(dst[20:], uint32(a.pages*pageBytes))
	le.PutUint32(dst[24:], 1) // granularity of times in nanoseconds
	le.PutUint16(dst[28:], uint16(a.pages))
	le.PutUint32(dst[32:], uint32(takes>>32))
	return 64
}

// putAttributes writes a struct fuse_attr.
func putAttributes(dst []byte, node uint64) {
	size, mode := uint64(fileBytes), uint32(unix.S_IFREG|0o444)
	if node == rootNode {
		size, mode = pageBytes, unix.S_IFDIR|0o555
	}
	le.PutUint64(dst, node)
	le.PutUint64(dst[8:], size)
	le.PutUint32(dst[60:], mode)
	le.PutUint32(dst[64:], 1)
	le.PutUint32(dst[80:], pageBytes)
}

// putHeader writes a reply's header.
func putHeader(dst []byte, n int, errno syscall.Errno, unique uint64) {
	le.PutUint32(dst, uint32(outHeaderBytes+n))
	le.PutUint32(dst[4:], uint32(-int32(errno)))
	le.PutUint64(dst[8:], unique)
}
