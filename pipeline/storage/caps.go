package storage

import (
	"context"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/uring"
)

// Caps are what a storage can do besides the methods of Storage. A field that is nil is a capability
// that the storage does not have. The functions may be called concurrently, until the storage is
// closed.
//
// A wrapper starts with the Caps of the storage that it wraps, and replaces what it does in another
// way: it must not hand out a way around itself. OnlySubmit removes those ways for wrappers that
// alter, count or delay reads. package storagetest checks what each wrapper passes on (RunWrapper).
type Caps struct {
	// StatStable is Stat for an object that is going to be read. Like List, it waits until a later
	// change would show in the version. Without it, Stat's versions always show later changes.
	StatStable func(ctx context.Context, path string) (Object, error)
	// Omitted returns what the last List left out on its own, besides what match rejected: at most
	// MaxOmitted names that begin with a dot, links that lead back to a directory above them, keys
	// that are not paths, and anything that is neither a file nor a directory. A directory's path
	// ends in '/'. The caller must not change the slice.
	Omitted func() []Omission

	// Parts returns the paths of what a listed object is cut from, for storages whose objects are
	// cut from other objects below the same root: files, directories, or names within a file (the
	// file's path followed by the name). Objects with the same parts have the same records.
	Parts func(path string) []string
	// Join makes an object from one file for each name, for storages whose objects consist of
	// several files each. List has listed the files. An error names the file that can't be part of
	// an object.
	Join func(ctx context.Context, names []string, files []Object) (Object, error)
	// Outline opens an object with zeros in place of the files' contents, for storages whose objects
	// are files with headers around them: an index pass needs only the headers. Its ReadAt does no
	// I/O, must not be called concurrently, and may be used until the storage is closed or lists
	// again. An object that is no longer the one that was listed gives ErrChanged.
	Outline func(o Object) (io.ReaderAt, error)
	// Check verifies everything that reads of an object rely on besides the data, for storages whose
	// objects are computed from files with a structure of their own, which an index pass does not
	// see: that files have the necessary sizes, and that indexes in them are plausible. An error
	// names the damaged files, or some of them if there are many.
	Check    func(ctx context.Context, o Object) error
	Verifier Verifier

	// Mapper maps objects that are in the page cache.
	Mapper Mapper
	// OpenResident opens an object whose parts may be in memory. If the object is no longer the one
	// that was listed, the error is ErrChanged. If objects must not be read from memory, the Resident
	// is nil.
	OpenResident func(o Object) (Resident, error)
	// OpenSequential returns the bytes of an object from off to its end, followed by io.EOF, with
	// less than one request per part. A stream that breaks is resumed where it broke. Errors are
	// *Error, or the error of ctx, which must last as long as the reader. They wrap ErrChanged if the
	// object is no longer the one that was listed. The reader is for one goroutine at a time, except
	// for Close, which ends a pending Read. Callers bound how many streams are open.
	OpenSequential func(ctx context.Context, o Object, off int64) (io.ReadCloser, error)
	// Uncached opens the same objects once more, for reads that bypass the page cache. If objects
	// are known only from listings, the new storage has those listed so far. The caller owns the
	// result, and closes it before this storage. The result is nil if the storage below can't bypass
	// the page cache. If the user has turned direct reads off, it reads through the page cache.
	Uncached func() (Storage, error)
	// Fill is Submit for reads with the lowest priority, which no reader waits for: they come after
	// everything that was submitted, and after everything that was announced to Hints.
	Fill func(reads []*Read)

	// Hints takes announcements of what will be read.
	Hints Hints

	// Status describes the storage's reads the way the engine's Status would, for storages that
	// don't read through the engine that they were created with.
	Status func() uring.Status
	// AdjustProfile returns which reads the storage is fast at, for the profile of the file system or
	// service below. It is pure.
	AdjustProfile func(below profile.Profile) profile.Profile
	// HeldBytes returns about how much memory the storage holds to describe its objects, for storages
	// that hold more than the caller can compute.
	HeldBytes func() int64
}

// OnlySubmit returns c without the capabilities that read objects other than by Submit. Hints, and
// what describes objects, remain.
func (c Caps) OnlySubmit() Caps {
	c.Verifier, c.Mapper, c.OpenResident, c.OpenSequential, c.Uncached, c.Fill = nil, nil, nil, nil, nil, nil
	return c
}

// StatStable describes an object that is going to be read: it is Caps.StatStable of s, or Stat.
func StatStable(ctx context.Context, s Storage, path string) (Object, error) {
	if stat := s.Caps().StatStable; stat != nil {
		return stat(ctx, path)
	}
	return s.Stat(ctx, path)
}

// OmittedBy returns what the last List of a storage left out on its own.
func OmittedBy(s Storage) []Omission {
	if omitted := s.Caps().Omitted; omitted != nil {
		return omitted()
	}
	return nil
}
