package storage

import "errors"

// Mapper is an optional upgrade of a Storage: what the page cache holds of an
// object can be copied from where it lies. A wrapper that alters reads, or
// delays those that succeed, is none. Its methods may be called concurrently.
type Mapper interface {
	// Maps says whether objects may be mapped at all. It does not change.
	Maps() bool
	// Map opens and maps an object, and calls done once, from a goroutine of the
	// storage and never from within Map. An opening may take any time. Nothing of a
	// mapping may be touched before it has been populated.
	//
	// Errors are *Error: ErrChanged; ErrNotMapped where this object can't be mapped,
	// now and later; ErrTooManyMappings.
	Map(o Object, done func(Mapping, error))
	// Evictions is a number that stays the same as long as the page cache is
	// known not to have lost pages (but for what was so in the last 100 ms). It
	// costs little enough to be asked for each read.
	Evictions() uint64
	Leaser
}

// Leaser is about leases on mapped objects: while there is one, nobody can alter
// the object's bytes. Who wants to waits for the lease to be given up, which is at
// once. A process that stands still, and does not give it up, loses it after a while,
// and is not told.
//
// Bytes that are copied are right if nobody can have altered them before the copy
// was made:
//
//	breaks := l.Breaks()       before any
//	mapping.Leased() …         of each object
//	…                          copy
//	l.Unbroken(breaks)         yes: nobody can; no: look at each object (Check)
type Leaser interface {
	// Breaks is how many leases somebody has waited for so far.
	Breaks() uint64
	// Unbroken says whether all leases that there were when Breaks gave the number
	// were there without a break up to now. No may also mean that it is not known.
	Unbroken(breaks uint64) bool
	LeaseStats() LeaseStats
}

// LeaseStats is a snapshot for status.
type LeaseStats struct {
	Held    int            `json:"held"`              // now
	Broken  uint64         `json:"broken"`            // since somebody wanted to write
	Refused map[string]int `json:"refused,omitempty"` // mapped objects without one, by reason
}

// Mapping is an object in the address space. Ranges are in bytes and lie inside
// of it. Methods may be called concurrently, but for Close.
//
// Memory that is mapped goes away when the file is truncated: touching it is
// then a fault (SIGBUS), and the rest of the last page shows zeros. So it is
// copied under debug.SetPanicOnFault, and used only if, after the copy, leases
// were Unbroken or Check gives nil.
type Mapping interface {
	// Bytes is the whole object. What is populated may be read, nothing written.
	Bytes() []byte
	// Populate makes a range readable without a fault if all of it is in the page
	// cache now, else it does nothing. It counts: Drop must be called as often.
	// added is by how much more memory is mapped; that is in blocks, and one that
	// two ranges share is counted once.
	Populate(off, size int64) (added int64, ok bool)
	// Trim unmaps what the kernel has mapped beside a range along with it, up to
	// whole folios of 2 MiB. It is needed where what is mapped is to be no more
	// than what is counted.
	Trim(off, size int64)
	// Resident says whether all of a range is in the page cache still.
	Resident(off, size int64) bool
	// Drop ends one Populate of the same range. Nothing may touch the range any
	// more, unless it is populated otherwise. freed is by how much less is mapped.
	Drop(off, size int64) (freed int64)
	// Check looks at the object, and gives an *Error with ErrChanged when it is not
	// any more what was listed. So bytes that were copied before it are right as far
	// as the storage can tell.
	Check() error
	// Leased says whether the object has a lease. It costs next to nothing: leases
	// are asked for, and asked for again, by the storage.
	Leased() bool
	// OpenForWriting says that the object has no lease because a program has it open
	// for writing. What that one stores through a mapping of its own may show in no
	// attribute, so Check does not tell of it.
	OpenForWriting() bool
	// Close unmaps everything. It may be called after the storage's Close.
	Close() error
}

// MapBlockBytes is what a Mapping is populated, dropped and counted by.
const MapBlockBytes = 64 << 10

var (
	// ErrNotMapped is wrapped by errors about objects that can't be mapped: they
	// are read.
	ErrNotMapped = errors.New("not mapped")
	// ErrTooManyMappings is wrapped when some must be closed first.
	ErrTooManyMappings = errors.New("too many files are mapped")
)
