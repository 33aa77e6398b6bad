package storage

import "sync/atomic"

// Hints is for storages that read better if they know what comes next: a request to a service takes
// tens of milliseconds, reads that are needed later can wait for more urgent ones, and what is
// needed again can be kept. Hints change when data is fetched and what is kept, never what reads
// return. The methods return at once. They may be called concurrently, but not for the same reader.
//
// A reader is a number that no other reader of the process has (NewReaderID). It announces the
// blocks that it is going to read, soonest first, some at a time:
//
//	blocks of the reader  ├── passed ──┤├─── Want: announced ───┤  not announced yet
//	                              Passed ──►        next Want ──►
type Hints interface {
	// Want announces what a reader is going to read, soonest first. It replaces what the reader
	// announced before, except for blocks that the storage has begun to fetch: these are kept until
	// Passed or Drop. So each call repeats the blocks that the reader has not come to, and adds
	// those after them; a storage that notes only some is offered the others again. A reader that
	// goes elsewhere calls Drop first. The caller may reuse the slice.
	Want(reader uint64, blocks []Block)
	// Passed reports that a reader does not need these blocks of its Wants any more, because it has
	// read them. If HintUse.Exact is set, it is about to submit their reads, in the order in which it
	// announced them. The caller may reuse the slice.
	Passed(reader uint64, blocks []Block)
	// Drop ends a reader: it has passed everything that it announced, or does not want it any more.
	Drop(reader uint64)
	// Use returns what the storage does with hints.
	Use() HintUse
	// SetShare sets how much of HintUse.RoomBytes is set aside for chunks that running orders have
	// open, which are those between their first and their last record. The rest is for data that
	// stays permanently. Storages that keep no blocks ignore it.
	SetShare(bytes int64)
}

// HintUse is what a storage does with hints, which determines what blocks are. All fields but
// RoomBytes are constant.
//
// By default, a storage orders its reads by when they are needed, and treats reads of blocks that
// were not announced as urgent.
type HintUse struct {
	// Keeps means that the storage stores blocks on a disk. What is announced is fetched before it
	// is read, once, no matter which part of it is read first, and stays at least until it is
	// passed, as long as there is room.
	Keeps bool
	// RoomBytes is how many bytes of announced blocks the storage may keep at a time.
	RoomBytes int64

	// Exact means that the storage computes reads from larger pieces, and keeps pieces in memory
	// that will be needed again (package crops). Blocks are exactly the ranges that will be
	// submitted, in this order.
	Exact bool
}

// Block is a range of an object that is going to be read: a chunk, a part of one, or a record.
// Object is in the version that was listed. Epoch is as in Read.
type Block struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	Epoch                  uint64
	DueBytes               int64 // how many bytes of the reader's stream come before it is needed; 0 if a reader waits for it
}

// NewReaderID returns a number for a reader that gives Hints, unique in the process.
func NewReaderID() uint64 { return readers.Add(1) }

var readers atomic.Uint64
