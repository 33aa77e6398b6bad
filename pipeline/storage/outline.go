package storage

import "io"

// Outliner is implemented by storages whose objects are put together from files
// and what is written around these. An index pass needs only the latter.
type Outliner interface {
	// Outline opens an object with zeros in the places of the files' contents. Its
	// ReadAt does no I/O, and is for one goroutine at a time; it may be used until
	// the storage is closed or lists anew. An object that is not what was listed
	// gives ErrChanged.
	Outline(o Object) (io.ReaderAt, error)
}
