package storage

import "github.com/lsiofs/lsiofs/uring"

// Reporter is implemented by storages that don't read through the engine that they were created
// with. Status describes their reads the way the engine's Status would.
type Reporter interface {
	Status() uring.Status
}

// Uncached is implemented by storages that can bypass the page cache.
type Uncached interface {
	// Uncached opens the same objects once more, for reads that bypass the page cache. If objects
	// are known only from listings, the new storage has those listed so far. The caller owns the
	// result, and closes it before this storage. The result is nil if the storage does not support
	// this. If the user has turned direct reads off, it reads through the page cache.
	Uncached() (Storage, error)
}

// Omitter is implemented by storages whose List leaves out more than match rejects: names that
// begin with a dot, links that lead back to a directory above them, keys that are not paths, and
// anything that is neither a file nor a directory.
type Omitter interface {
	// Omitted returns what the last List left out on its own, at most MaxOmitted entries. A
	// directory's path ends in '/'. The caller must not change the slice.
	Omitted() []Omission
}

// Omission is a name that a listing has left out, and why.
type Omission struct{ Path, Reason string }

// MaxOmitted is the most omissions that a storage remembers.
const MaxOmitted = 10_000

// Reasons of omissions.
const (
	OmittedHidden = "its name begins with a dot"
	OmittedKey    = "its key is no path"
	OmittedLoop   = "it is a link that leads back to a directory above it"
	OmittedDead   = "it is a link that leads to nothing"
	OmittedKind   = "it is a pipe, a socket or a device"
)

// OmittedBy returns what the last List of a storage left out on its own.
func OmittedBy(s Storage) []Omission {
	if o, ok := s.(Omitter); ok {
		return o.Omitted()
	}
	return nil
}

// Assembler is implemented by storages whose objects are cut from other objects below the same
// root.
type Assembler interface {
	// Parts returns the paths of what a listed object is cut from: files, directories, or names
	// within a file (the file's path followed by the name). Objects with the same parts have the
	// same records.
	Parts(path string) []string
}
