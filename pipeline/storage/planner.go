package storage

import "sync/atomic"

// Planner is for storages that read better if they know what comes next: a request to a service
// takes tens of milliseconds, and reads that are needed later can wait for more urgent
// ones. Plans change when data is read and what is kept, never what reads return. The methods may
// be called concurrently and return at once.
type Planner interface {
	// Plan announces what a reader is going to read, nearest first. It replaces the reader's
	// earlier plans as far as they have not been started; ranges that have been started are kept
	// until Done or Forget. A reader is any number that no other reader has. The caller may reuse
	// the slice.
	Plan(reader uint64, wants []Want)
	// Done reports that a reader does not need a range any more, because it has read it or has
	// moved elsewhere. The range is that of a Want.
	Done(reader uint64, object Object, offsetBytes, sizeBytes int64)
	// Forget ends a reader: everything that it planned is done. A reader that has moved elsewhere
	// calls it before its next Plan.
	Forget(reader uint64)
}

// NewReaderID returns a number for a reader of a Planner, unique in the process.
func NewReaderID() uint64 { return readers.Add(1) }

var readers atomic.Uint64

// Keeper is for Planners that store planned data on a disk. What is planned is fetched before it is
// read, once, no matter which part of it is read first, and stays at least until it is Done, as
// long as there is room.
type Keeper interface {
	// RoomBytes returns how many bytes of planned data that is not Done it may store at a time.
	RoomBytes() int64
	// SetShare sets how much of that is set aside for chunks that running orders have open, which
	// are those between their first and their last record. The rest is for data that stays
	// permanently.
	SetShare(bytes int64)
}

// Want is a range that is going to be read: a chunk, or a part of one.
type Want struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	DueBytes               int64 // how many bytes of the reader's stream come before it is needed; 0 if a reader waits for it
}
