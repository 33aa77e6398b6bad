package storage

import "errors"

// Mapper is an optional upgrade of a Storage: what the page cache holds of an
// object can be copied from where it lies. A wrapper that alters reads, or
// delays those that succeed, is none. Its methods may be called concurrently.
type Mapper interface {
	// Map opens and maps an object. Nothing of it may be touched before it has
	// been populated. It may wait for a disk.
	//
	// Errors are *Error: ErrChanged; ErrNotMapped where objects are not to be
	// mapped, or can't be; ErrTooManyMappings.
	Map(o Object) (Mapping, error)
	// Evictions is a number that stays the same as long as the page cache is
	// known not to have lost pages (but for what was so in the last 100 ms). It
	// costs little enough to be asked for each read.
	Evictions() uint64
	// Changes is a number that stays the same as long as no object that is mapped
	// is known to have changed. An object may have changed a moment before, by a
	// call that is not at its end; it is found to have after 100 ms at the latest.
	Changes() uint64
	Leaser
}

// Leaser is about leases on mapped objects: while there is one, nobody can alter
// the object's bytes. Who wants to waits for the lease to be given up, which is at
// once, but for what is held at the time. So the bytes of leased objects can be
// handed on as they lie:
//
//	breaks := l.Breaks()       before any
//	mapping.Lease() …          of each object
//	…                          look for records, wait for them
//	l.Hold(breaks)             all of them have their leases still
//	…                          hand bytes on
//	l.Unhold()
type Leaser interface {
	// Breaks is how many leases somebody has waited for so far.
	Breaks() uint64
	// Hold keeps all leases from being given up until Unhold, which must be soon: it
	// may hold up a writer, so nothing but memory is to be waited for. It returns
	// false, and does nothing, if any lease was wanted since Breaks gave the number.
	Hold(breaks uint64) bool
	Unhold()
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
// copied under debug.SetPanicOnFault, and used only if Check, called after the
// copy, gives nil; or handed on as it lies while a lease is held.
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
	// Check gives an *Error with ErrChanged when the object is not any more what
	// was listed. With what Changes has given after the copy it looks at the object
	// only if it has not since then; with 0 it does always.
	Check(changes uint64) error
	// Lease says whether the object has a lease, and asks for one if it may be had.
	// It costs little where there is one.
	Lease() bool
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
