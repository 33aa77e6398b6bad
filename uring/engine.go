// Package uring reads files: through io_uring if the kernel permits it, otherwise with pread on a
// bounded pool of goroutines. It knows nothing of datasets.
//
//	             ┌─ in the page cache, or alone ──► copied by goroutines (RWF_NOWAIT) ─┐
//	Submit ──────┤                                                                     ├──► Done
//	             ├─ other local reads ──► queue ──► ring (or pread pool) ──────────────┤
//	             └─ of a Remote file ──► queue ──► pread pool ─────────────────────────┘
//
// # Engines
//
// Open returns an Engine. Submit hands over a batch of requests and does not wait for them. Each
// request's Done is called exactly once, from a goroutine of the engine. Both engines have the same
// contract and pass the same test suite: the same requests give the same bytes and the same errors.
//
// At a time the kernel has at most 127 reads and 32 MiB (or one larger read), or 32 preads. Further
// requests wait in a queue, first come, first served.
//
// A request takes one of these ways:
//
//   - Requests for Remote files are read by the pool in both engines, without asking the
//     page cache or the ring. A pread that takes more than a second no longer counts
//     against the pool's size. While a File has several such preads, no more of its reads
//     are started until one ends. So a file that stalls delays no other file.
//   - Data in the page cache is copied by a few goroutines, at most one per core. A ring
//     would copy on one core, and several times slower. A request that is alone is read
//     by such a goroutine, too.
//   - All others go to the ring or the pool, and bypass the page cache according to the
//     File's policy. Such direct reads need no alignment of offset, size or memory: the
//     engine has aligned blocks (34 MiB, mapped at the first such read, and registered
//     with the ring if the limit on locked memory permits it). But copying out of the
//     blocks costs more CPU than all the rest. Reads of any size from 128 KiB on go
//     straight into the caller's memory, if they begin at a multiple of 4096 bytes and the
//     memory was returned by Map.
//
// ReadNow reads at once, on the caller's goroutine, if the data is in the page cache.
//
// # Memory
//
// Map returns page-aligned memory outside the Go heap, in 2 MiB pages if the kernel has them:
// direct reads of 128 KiB and more into such pages were measured to be twice as fast. The kernel
// writes to a request's buffer until the read completes, even if the submitter is gone. So an
// engine keeps every request in a table until then.
package uring

import "errors"

// Request is one read of an open file.
//
// Buf must not be empty. It belongs to the engine from Submit until Done is called, and FD must
// stay open that long.
//
// Done gets the number of bytes read and an error. n < len(Buf) with a nil error means that the
// file ends there; with an error, n bytes were read before it. Errors are syscall.Errno values
// without text around them, or the error of the File's verify. Short reads, EINTR and EAGAIN are
// handled inside and never reach Done. Done is called from a goroutine of the engine. It must not
// block and must not call Close; it may call Submit.
//
// Wanted, if set, is called before the kernel gets the read, perhaps more than once, on the same
// goroutines as Done. Once it returns false it is not called again: Done gets ErrUnwanted, and
// nothing more is read. So a submitter can cancel a request that waits in the engine's queue, but
// not one that the kernel has begun.
type Request struct {
	File        *File // nil: FD is read as a plain descriptor
	FD          int
	OffsetBytes int64
	Buf         []byte
	Wanted      func() bool // nil means always wanted
	Done        func(n int, err error)
}

// Engine reads files. Its methods may be called concurrently.
type Engine interface {
	// Submit hands requests over and returns; the caller may reuse the slice. It never waits, and
	// never calls Done itself, so it may be called from Done and under locks that Done takes. A
	// waiting request costs the engine 24 bytes besides the caller's buffer, so a bound on the
	// caller's buffers bounds everything. After Close every request completes with ErrClosed.
	Submit(requests []*Request)
	// ReadNow reads a request of a File on the caller's goroutine if the page cache holds all of
	// it. If it returns true, Buf is full, and Done is not called. If it returns false, Buf's
	// contents are undefined, the kernel may have begun to read the missing data, and the caller
	// continues with Submit. It never waits for a disk. For small reads it saves the hand-over to
	// another goroutine, which costs more than the copy.
	ReadNow(r *Request) bool
	// Status describes the engine for people and metrics.
	Status() Status
	// Close waits until all submitted requests are read, stops the engine's goroutines
	// and frees its memory. It is idempotent.
	Close() error
}

// Status is a snapshot of an engine.
type Status struct {
	Engine        string `json:"engine"`    // "uring" or "pread"
	Reason        string `json:"reason"`    // why this engine was chosen, in words; "" if it was requested
	InFlight      int64  `json:"in_flight"` // requests submitted and not done, including queued ones
	InFlightBytes int64  `json:"in_flight_bytes"`
	Reads         uint64 `json:"reads"` // requests done without an error
	ReadBytes     uint64 `json:"read_bytes"`
	Errors        uint64 `json:"errors"`   // requests done with an error, except unwanted ones
	Unwanted      uint64 `json:"unwanted"` // requests that were cancelled before they had begun
	// CachedReads counts the Reads that the page cache answered at once, DirectReads those that
	// bypassed it.
	CachedReads uint64 `json:"cached_reads"`
	DirectReads uint64 `json:"direct_reads"`
	// RemoteReads counts the Reads of files on FUSE or a network file system, which are made by
	// threads. Stuck is the number of reads by threads that have now waited for more than a second.
	RemoteReads uint64 `json:"remote_reads"`
	Stuck       int64  `json:"stuck"`
	// NotDirect has the reasons why Files that should bypass the page cache don't, with the number
	// of Files. For a temporary reason (no free descriptors) it counts reads.
	NotDirect map[string]uint64 `json:"not_direct,omitempty"`
	// Registered reports whether the memory for unaligned direct reads is registered with the ring,
	// which is tried at the first such read. NotRegistered is why it was refused; reads then cost
	// slightly more CPU.
	Registered    bool   `json:"registered"`
	NotRegistered string `json:"not_registered,omitempty"`
}

// ErrClosed completes requests that were submitted after Close.
var ErrClosed = errors.New("io engine is closed")

// ErrUnwanted completes requests that were cancelled before they had begun.
var ErrUnwanted = errors.New("the read is not wanted any more")

// Mode chooses an engine.
type Mode string

const (
	ModeAuto  Mode = "auto"  // uring if a ring can be made and read through, otherwise pread
	ModeUring Mode = "uring" // uring; an error if io_uring is not permitted
	ModePread Mode = "pread"
)
