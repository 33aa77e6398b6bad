package storage

// Expecter is implemented by storages that make what they are asked for of larger pieces, and
// keep those that are wanted again (package cubes). What it is told changes what is kept, never
// what reads give. Its methods may be called concurrently, those of one reader one after the
// other, and wait for no read.
type Expecter interface {
	// Expect says what a reader is going to read behind all that it expects already, in this
	// order. It gives how many of the ranges are kept in mind, the first ones: the others may be
	// said again later. A reader is a number of NewReaderID. The slice is the caller's again.
	Expect(reader uint64, next []Range) int
	// Passed says that a reader is about to submit the first n of the ranges that it expects, or
	// does not want them any more.
	Passed(reader uint64, n int)
	// Forget ends a reader, or all that it expects when it goes elsewhere.
	Forget(reader uint64)
}

// Range is a range of an object, in the version that was listed. Epoch is as in Read.
type Range struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	Epoch                  uint64
}
