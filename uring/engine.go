// Package uring reads files: through io_uring where the kernel permits it,
// through pread on a bounded pool of goroutines where not. It knows nothing of
// datasets.
//
// # Engines
//
// Open gives an Engine. Requests are handed over in batches by Submit, which
// does not wait for them; each request's Done is called exactly once, from a
// goroutine of the engine. Both engines keep one contract and pass one suite:
// the same requests give the same bytes and the same errors.
//
// At most 127 reads and 32 MiB (or one larger read) are with the kernel at a
// time, or 32 preads; what is submitted beyond that waits in a queue, first
// come, first served.
//
// Requests for a File that is Remote are read by the pool in both engines: the
// page cache is not asked first, nor the ring. A pread that takes over a second
// does not count as one of the pool, and of a File that has some of these no more
// reads are begun until one ends: so a file that stalls holds up no other.
//
// Requests for other Files go through three ways. What the page cache holds is
// copied by a few goroutines, one a core at most: a ring would do that on one
// core, and several times slower. A request that is alone is read by such a
// goroutine too. The rest goes to the ring or the pool, and bypasses the page
// cache where the File says so. Offsets, sizes and memory need not be aligned
// for that, for the engine has aligned blocks (34 MiB, mapped at the first such
// read, and registered with the ring where the limit on locked memory permits
// it). But the copy out of them costs more CPU than all the rest: reads at
// multiples of 4096 bytes into memory of Map go straight into it, whatever
// their size if that is 128 KiB and more.
//
// What a caller wants at once it may ask for with ReadNow.
//
// # Memory
//
// Map gives page-aligned memory outside of the Go heap, in 2 MiB pages where
// the kernel has them: direct reads of 128 KiB and more into such pages were
// measured to be twice as fast. The kernel writes to a request's buffer until its
// completion, whatever becomes of the reader, so an engine keeps every request
// in a table until then.
package uring

import "errors"

// Request is one read of an open file.
//
// Buf must not be empty, and belongs to the engine from Submit until Done is
// called; FD must stay open as long. Done gets the number of bytes that were
// read and an error. An n below len(Buf) with a nil error means that the file
// ends there; beside an error it says how much was read before it. Errors are
// syscall.Errno values without a text around them, or what the File's verify
// said. Short reads, EINTR and EAGAIN never reach Done. Done is called from a
// goroutine of the engine, must not block and must not call Close; it may call
// Submit.
//
// Wanted, where it is set, is asked before the kernel is, perhaps more than
// once, from where Done is called from. Its first no is the last question: Done
// then gets ErrUnwanted, and nothing more is read. So a submitter may call off what
// waits in the engine's queue, and nothing that the kernel has begun.
type Request struct {
	File        *File // nil: FD is read as it is
	FD          int
	OffsetBytes int64
	Buf         []byte
	Wanted      func() bool // nil: always
	Done        func(n int, err error)
}

// Engine reads. Its methods may be called concurrently.
type Engine interface {
	// Submit hands requests over and returns; the slice is the caller's
	// again. It never waits, so it may be called from Done and under locks
	// that Done takes: Done is never called from within Submit. What waits
	// costs the engine 24 bytes a request, beside the buffer that is the
	// caller's, so a bound on the caller's buffers bounds everything. After
	// Close every request completes with ErrClosed.
	Submit(requests []*Request)
	// ReadNow reads a request of a File on the caller's goroutine if the page
	// cache holds all of it, and says whether it has: then Buf is full, and
	// Done is not called. Otherwise Buf's contents are undefined, the kernel
	// may have begun to read what is missing, and Submit is the way. It never
	// waits for a disk. For small reads it saves the hand-over, which costs
	// more than the copy.
	ReadNow(r *Request) bool
	// Status describes the engine for people and metrics.
	Status() Status
	// Close waits until all requests that were submitted are read, stops the
	// engine's goroutines and frees what it holds. It is idempotent.
	Close() error
}

// Status is a snapshot of an engine.
type Status struct {
	Engine        string `json:"engine"`    // "uring" or "pread"
	Reason        string `json:"reason"`    // why this engine and not the other, in words; "" where it was asked for
	InFlight      int64  `json:"in_flight"` // requests submitted and not done, queued ones too
	InFlightBytes int64  `json:"in_flight_bytes"`
	Reads         uint64 `json:"reads"` // requests done without an error
	ReadBytes     uint64 `json:"read_bytes"`
	Errors        uint64 `json:"errors"`   // requests done with an error, unwanted ones aside
	Unwanted      uint64 `json:"unwanted"` // requests that were called off before they had begun
	// Of Reads, those that the page cache answered at once, and those that
	// bypassed it.
	CachedReads uint64 `json:"cached_reads"`
	DirectReads uint64 `json:"direct_reads"`
	// RemoteReads, of Reads, are of files on FUSE or a network file system, which
	// threads make. Stuck is how many reads by threads have waited for more than a
	// second, now.
	RemoteReads uint64 `json:"remote_reads"`
	Stuck       int64  `json:"stuck"`
	// NotDirect says why Files that were to bypass the page cache don't, with
	// the number of Files (of reads, where it passes: descriptors).
	NotDirect map[string]uint64 `json:"not_direct,omitempty"`
	// Registered says that the memory for unaligned direct reads is registered
	// with the ring, which is tried at the first such read; NotRegistered why
	// it was refused. Reads then cost some CPU more.
	Registered    bool   `json:"registered"`
	NotRegistered string `json:"not_registered,omitempty"`
}

// ErrClosed completes requests that were submitted after Close.
var ErrClosed = errors.New("io engine is closed")

// ErrUnwanted completes requests that were called off before they had begun.
var ErrUnwanted = errors.New("the read is not wanted any more")

// Mode chooses an engine.
type Mode string

const (
	ModeAuto  Mode = "auto"  // uring if a ring can be made and read through, else pread
	ModeUring Mode = "uring" // an error where io_uring is not permitted
	ModePread Mode = "pread"
)
