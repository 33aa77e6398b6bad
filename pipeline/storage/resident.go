package storage

// Resident reads of one object what memory holds, on the caller's goroutine: a
// small read then costs a system call, not a way through queues. It is not for
// concurrent use.
//
// The object was what was listed when Resident was opened. Whoever relies on
// what was read asks Storage.Stat once more after the last read.
type Resident interface {
	// Holds says whether memory holds all of a range; no, where that can't be told.
	Holds(offsetBytes, sizeBytes int64) bool
	// ReadAt fills p without waiting for a disk. No means that not all of it was
	// in memory any more, and that p's contents are undefined.
	ReadAt(p []byte, offsetBytes int64) bool
	Close() error
}

// ResidentOpener is implemented by storages whose objects memory may hold. An
// object that is not any more what was listed gives ErrChanged; where memory is
// not to be read from, the Resident is nil.
type ResidentOpener interface {
	OpenResident(o Object) (Resident, error)
}
