package storage

import "io"

// HeaderReader is implemented by storages whose objects are files with headers around them. An index
// pass needs only the headers.
type HeaderReader interface {
	// Outline opens an object with zeros in place of the files' contents. Its ReadAt does no I/O,
	// must not be called concurrently, and may be used until the storage is closed or lists again.
	// An object that is no longer the one that was listed gives ErrChanged.
	Outline(o Object) (io.ReaderAt, error)
}
