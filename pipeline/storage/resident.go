package storage

// Resident reads the parts of one object that are in memory, on the caller's goroutine.
// A small read then costs a system call instead of a way through queues. It is not for
// concurrent use.
//
// The object was the one that was listed when Resident was opened. A caller that relies
// on the bytes calls Unchanged, or Storage.Stat, after the last read.
type Resident interface {
	// Holds says whether all of a range is in memory. It is false if that can't be told.
	Holds(offsetBytes, sizeBytes int64) bool
	// ReadAt fills p without waiting for a disk. False means that part of the range was
	// no longer in memory, and that p's contents are undefined.
	ReadAt(p []byte, offsetBytes int64) bool
	// Unchanged says, behind a read, that the object still is the one that was listed: what was
	// read is its bytes. The name may be another's by now.
	Unchanged() error
	Close() error
}

// ResidentOpener is implemented by storages whose objects may be in memory. An object
// that is no longer the one that was listed gives ErrChanged. If memory must not be read
// from, the Resident is nil.
type ResidentOpener interface {
	OpenResident(o Object) (Resident, error)
}
