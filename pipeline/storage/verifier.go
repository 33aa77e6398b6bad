package storage

import "context"

// Verifier is for storages whose objects are computed from files, if reading the objects
// would read some parts of the files repeatedly and others never.
type Verifier interface {
	// AuditBytes returns about how many bytes of files an audit of an object reads.
	AuditBytes(o Object) int64
	// Audit reads all files that an object is computed from, once, and checks what can be checked.
	// It calls damage for each defect, with a text that names the file and the place, and read with
	// the number of bytes read since its last call. Only one goroutine at a time calls either.
	//
	// decodedBytes is the size of the files' data without compression. An error is the context's,
	// or names files that could not be read; that is not damage. The other files are checked
	// anyway, unless too many can't be read.
	Audit(ctx context.Context, o Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error)
}
