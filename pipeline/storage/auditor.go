package storage

import "context"

// Auditor is implemented by storages whose objects are computed from files, of which reading the
// objects would see parts again and again, and others never.
type Auditor interface {
	// AuditBytes is how many bytes of files an audit of an object reads, about.
	AuditBytes(o Object) int64
	// Audit reads all of the files that an object is computed from, once, and checks what can be
	// checked. It calls damage with each thing that is wrong, in words that name file and place,
	// and read with the bytes that were read since the last call; both by one goroutine at a time.
	// decodedBytes is what they are without compression. An error is the context's, or says what
	// could not be read, which is no damage; files that can be read are looked at all the same,
	// as long as those that can't are few.
	Audit(ctx context.Context, o Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error)
}
