package storage

import "github.com/lsiofs/lsiofs/uring"

// Reporter is implemented by storages that do not read through the engine that they
// are opened beside. Status is what such an engine would say of their reads.
type Reporter interface {
	Status() uring.Status
}

// Uncached is implemented by storages that can be read past the page cache.
type Uncached interface {
	// Uncached opens the same objects once more, for reads that go past the page
	// cache: those that were listed by then, where objects are known by their listing.
	// It is the caller's, who closes it first. It is nil where there is no such way.
	// Where the user wants no reads past the page cache, it reads through that.
	Uncached() (Storage, error)
}
