package storage

import "errors"

// Mapper maps objects: those of their bytes that are in the page cache can be copied from mapped
// memory. A wrapper that alters reads, or delays successful ones, must not pass it on. Its methods
// may be called concurrently.
type Mapper interface {
	// Map opens and maps an object. It calls done once, from a goroutine of the storage
	// and never from within Map. Opening may take any time. No byte of a mapping may be
	// touched before it has been populated.
	//
	// Errors are *Error. They wrap ErrChanged, ErrTooManyMappings, or ErrNotMapped if this object
	// can never be mapped; after any other error it may be tried again later.
	Map(o Object, done func(Mapping, error))
	// Evictions returns a number that stays the same while the page cache is known to have lost no
	// pages, except perhaps in the last 100 ms. It is cheap enough to call for each read.
	Evictions() uint64
	Leaser
}

// Leaser grants leases on mapped objects. While an object has a lease, its bytes can't be altered.
// A program that wants to write has to wait until the lease is released, which happens at once. A
// process that is stopped, and so can't release it, loses the lease after a while without notice.
//
// Copied bytes are right if they can't have been altered before the copy was made:
//
//	breaks := l.Breaks()       before any
//	mapping.Leased() …         of each object
//	…                          copy
//	l.Unbroken(breaks)         true: the bytes are right; false: Check each object
type Leaser interface {
	// Breaks returns the number of leases so far that a program has waited for.
	Breaks() uint64
	// Unbroken reports whether all leases that existed when Breaks returned breaks have held until
	// now. False may also mean that this is not known.
	Unbroken(breaks uint64) bool
	LeaseStats() LeaseStats
}

// LeaseStats is a snapshot for status.json.
type LeaseStats struct {
	Held    int            `json:"held"`              // now
	Broken  uint64         `json:"broken"`            // because a program wanted to write
	Refused map[string]int `json:"refused,omitempty"` // mapped objects without one, by reason
}

// Mapping is an object in the address space. Ranges are in bytes and within the object. Methods may
// be called concurrently, except Close.
//
// If the file is truncated, its mapped memory disappears: touching it is then a fault (SIGBUS), and
// the rest of the last page reads as zeros. So copies are made under debug.SetPanicOnFault, and
// used only if, after the copy, leases were Unbroken or Check returned nil.
type Mapping interface {
	// Bytes returns the whole object. Only populated ranges may be read; nothing may be written.
	Bytes() []byte
	// Populate makes a range readable without a fault, if all of it is in the page cache now; else
	// it does nothing. Calls are counted: each needs a Drop of the same range. added is the number
	// of newly mapped bytes. Memory is mapped in blocks, and a block shared by two ranges is
	// counted once.
	Populate(off, size int64) (added int64, ok bool)
	// Trim unmaps what the kernel has mapped around a range along with it, up to whole folios of 2
	// MiB. Callers need it if no more may be mapped than is counted.
	Trim(off, size int64)
	// Resident reports whether all of a range is still in the page cache.
	Resident(off, size int64) bool
	// Drop ends one Populate of the same range. Nothing may touch the range any more,
	// unless another Populate covers it. freed is the number of bytes unmapped.
	Drop(off, size int64) (freed int64)
	// Check returns an *Error that wraps ErrChanged if the object is no longer the one that was
	// listed. If it returns nil, bytes that were copied before are right as far as the storage can
	// tell.
	Check() error
	// Leased reports whether the object has a lease. It costs next to nothing: the storage requests
	// leases on its own, repeatedly if necessary.
	Leased() bool
	// OpenForWriting reports whether the object has no lease because a program has it open for
	// writing. If that program stores through a mapping of its own, the file's attributes may not
	// show it, so Check can't detect it.
	OpenForWriting() bool
	// Lost reports that mapped bytes could not be accessed. If they are those of a copy of the
	// object, for example on a local disk, it returns an error that wraps ErrReadAgain: the copy is
	// not mapped any more, and losing it is not an error of the object. Otherwise it returns nil.
	Lost() error
	// Close unmaps everything. It may be called after the storage's Close.
	Close() error
}

// MapBlockBytes is the unit in which a Mapping is populated, dropped and counted.
const MapBlockBytes = 64 << 10

var (
	// ErrNotMapped is wrapped by errors about objects that can't be mapped, only read.
	ErrNotMapped = errors.New("not mapped")
	// ErrReadAgain is wrapped by errors of Mapping.Check and Lost about a copy that must not
	// be used any more. The caller discards what it read from the copy and reads it again, which
	// then uses another place.
	ErrReadAgain = errors.New("a copy of it is not there any more: it has to be read again")
	// ErrTooManyMappings is wrapped if other mappings must be closed first.
	ErrTooManyMappings = errors.New("too many files are mapped")
)
