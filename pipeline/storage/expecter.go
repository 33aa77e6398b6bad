package storage

// Expecter is for storages that compute what they are asked for from larger pieces, and
// keep the pieces that will be needed again (package crops). Expectations change what is kept,
// never what reads return. The methods don't wait for reads. They may be called concurrently, but
// not for the same reader.
type Expecter interface {
	// Expect announces what a reader is going to read, in this order, after everything that it
	// expects already. It returns how many of the ranges, counted from the first, the storage has
	// noted; the others may be announced again later. A reader is a number from NewReaderID. The
	// caller may reuse the slice.
	Expect(reader uint64, next []Range) int
	// Passed reports that a reader is about to submit the first n of the ranges that it expects, or
	// no longer wants them.
	Passed(reader uint64, n int)
	// Forget drops everything that a reader expects, because it has ended or moved elsewhere.
	Forget(reader uint64)
}

// Range is a range of an object in the version that was listed. Epoch is as in Read.
type Range struct {
	Object                 Object
	OffsetBytes, SizeBytes int64
	Epoch                  uint64
}
