package storage

import "github.com/lsiofs/lsiofs/uring"

// Reporter is implemented by storages that don't read through the engine given to them.
// Status describes their reads as the engine's Status would.
type Reporter interface {
	Status() uring.Status
}

// Uncached is implemented by storages that can bypass the page cache.
type Uncached interface {
	// Uncached opens the same objects once more, for reads that bypass the page cache.
	// If objects are known only by being listed, it has those listed so far. The caller
	// owns the result, and closes it before this storage. It is nil if the storage can't
	// do that. If the user wants no direct reads, it reads through the page cache.
	Uncached() (Storage, error)
}
