package storage

import (
	"context"
	"io"
	"sync/atomic"
)

// Planner is implemented by storages that read better when they know what comes: a
// request to a service takes tens of milliseconds, and what is known to be needed
// later can wait for what is needed now. What it is told changes when reads are made
// and what is kept, never what they give. Its methods may be called concurrently, and
// return at once.
type Planner interface {
	// Plan says what a reader is going to want, nearest first. It replaces what the
	// same reader said before and has not been begun; what was said before is kept all
	// the same, until Done or Forget. A reader is any number that no other has. The
	// slice is the caller's again.
	Plan(reader uint64, wants []Want)
	// Done says that a reader does not want a range any more: it has it, or has gone
	// elsewhere. The range is that of a want.
	Done(reader uint64, object Object, offsetBytes, sizeBytes int64)
	// Forget ends a reader: whatever it planned is done. It also goes before the Plan
	// of a reader that has moved elsewhere.
	Forget(reader uint64)
}

// NewReaderID gives a number for a reader of a Planner that no other of the process has.
func NewReaderID() uint64 { return readers.Add(1) }

var readers atomic.Uint64

// Keeper is a Planner that keeps what it was told of, on a disk: what is planned is
// brought there before it is read, once, whatever part of it is read first, and stays at
// least until it is Done, where there is room.
type Keeper interface {
	Planner
	// RoomBytes is how much it may keep at a time of what is planned and not done.
	RoomBytes() int64
	// SetShare says how much of that is set aside: what the orders that are read have
	// open at a time, between the first and the last record of a chunk. The rest is for
	// what stays for good.
	SetShare(bytes int64)
}

// Want is a range that is going to be read: a chunk, or a part of one.
type Want struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	DueBytes               int64 // of the reader's stream come before it is needed; 0: a reader waits for it
}

// Filler is implemented by storages that can also be asked for what nobody waits for.
type Filler interface {
	// Fill is Submit for reads that are made with what is left over: after all that
	// was submitted, and after all that a Planner was told of.
	Fill(reads []*Read)
}

// Sequential is implemented by storages that read an object from front to back with
// less than a request for each part.
type Sequential interface {
	// OpenSequential gives the bytes of an object from off on up to its end, then
	// io.EOF. What breaks is taken up where it broke. Errors are *Error, but for those
	// of ctx, which lasts as long as the reader; ErrChanged when the object is not
	// any more what was listed. The reader is for one goroutine, but for Close, which
	// ends a Read that waits. Callers bound how many there are.
	OpenSequential(ctx context.Context, o Object, off int64) (io.ReadCloser, error)
}
