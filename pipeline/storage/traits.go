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

// Omitter is implemented by storages whose List leaves out more than match rejects: names that
// begin with a dot, links that lead back to a directory on the way down, keys that are no paths, what is
// neither file nor directory.
type Omitter interface {
	// Omitted is what the last List has left out by itself, at most MaxOmitted of it. A
	// directory's path ends in '/'. The caller must not change it.
	Omitted() []Omission
}

// Omission is a name that a listing has left out, and why.
type Omission struct{ Path, Reason string }

// MaxOmitted bounds what a storage remembers of what it has left out.
const MaxOmitted = 10_000

// Reasons of omissions.
const (
	OmittedHidden = "its name begins with a dot"
	OmittedKey    = "its key is no path"
	OmittedLoop   = "it is a link that leads back to a directory above it"
	OmittedDead   = "it is a link that leads to nothing"
	OmittedKind   = "it is a pipe, a socket or a device"
)

// OmittedBy is what the last List of a storage has left out by itself.
func OmittedBy(s Storage) []Omission {
	if o, ok := s.(Omitter); ok {
		return o.Omitted()
	}
	return nil
}

// Assembler is implemented by storages whose objects are cut from other ones below the same root.
type Assembler interface {
	// Parts returns the paths of what a listed object is cut from: files, directories, or names in
	// a file, which come after its path. Objects with the same parts have the same records.
	Parts(path string) []string
}
