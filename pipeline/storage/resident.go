package storage

// Resident reads the parts of one object that are in memory, on the caller's goroutine. A small
// read then costs a system call instead of a pass through queues. It must not be used concurrently.
//
// The object was the one that was listed when the Resident was opened. A caller that relies on the
// bytes calls Unchanged, or Storage.Stat, after the last read.
type Resident interface {
	// Holds reports whether all of a range is in memory. It returns false if that is not known.
	Holds(offsetBytes, sizeBytes int64) bool
	// ReadAt fills p without waiting for a disk. It returns false if part of the range was no
	// longer in memory; p's contents are then undefined.
	ReadAt(p []byte, offsetBytes int64) bool
	// Unchanged returns nil if, after a read, the object is still the one that was listed, so that
	// the bytes read are the object's. Its name may belong to another file by now.
	Unchanged() error
	Close() error
}
