// Package storage is the contract between lsiofs and the places where shards
// lie: list objects, read ranges of them. local is files through package uring,
// folders directories of files as archives, joined arrays of several files as one,
// remote objects of services (s3, web). storagetest is the one suite that every
// implementation passes, but for joined, whose objects are no files. Wrappers (retry,
// counting, faults) are Storages themselves.
package storage

import (
	"context"
	"errors"
	"fmt"
)

// Version identifies what an object held when it was listed. Two equal versions
// of one object have the same bytes, as far as the storage can tell.
//
// Times are in nanoseconds. What the storage does not know, or what does not last
// there, is 0. ChangeTimeNanos is for those who keep what they know of an object
// from one run to the next: it also shows that something was written and the
// modification time was set back, and changes for less (names, modes). Reads don't
// compare it.
type Version struct {
	ModTimeNanos    int64
	ChangeTimeNanos int64
	Inode           uint64
}

// Object is one object as it was listed. Path is relative to the dataset's
// root, its components joined by '/'.
type Object struct {
	Path      string
	SizeBytes int64
	Version   Version
}

// Read is one range of one object that is wanted.
//
// Buf is filled with the len(Buf) bytes from OffsetBytes on; it must not be
// empty. Buf belongs to the storage until Done is called. Done is called
// exactly once, with nil or with an error after which Buf's contents are
// undefined: a read is never partial. It is called from a goroutine of the
// storage, never from within Submit, must not block and must not call Close; it
// may call Submit. Errors are *Error, but for ErrUnwanted.
//
// Wanted, where it is set, is asked before the read is begun, perhaps more than
// once, from where Done is called from. Its first no is the last question: Done
// then gets ErrUnwanted, and nothing more is read. So a submitter may call off reads
// that wait for their turn; those that have begun come to their end.
type Read struct {
	Object      Object
	OffsetBytes int64
	Buf         []byte
	Wanted      func() bool // nil: always
	Done        func(err error)
}

// Storage lists and reads objects. Its methods may be called concurrently.
type Storage interface {
	// List calls visit for every object below the root whose path match
	// accepts, in no particular order, and stops at the first error. match is
	// also asked about directories (isDir, path without trailing slash): those
	// it does not accept are not entered. Files and directories whose names
	// begin with a dot are passed over; symbolic links to files are followed,
	// those to directories are not. visit is not called concurrently. An object is
	// visited when a change that comes next would show in its version: where times
	// are coarse and the last change is young, that is waited for, some seconds.
	List(ctx context.Context, match func(path string, isDir bool) bool, visit func(Object) error) error
	// Stat describes one object as it is now, or fails with fs.ErrNotExist.
	Stat(ctx context.Context, path string) (Object, error)
	// Submit hands reads over and returns without waiting for their bytes;
	// the slice is the caller's again, and locks that Done takes may be held.
	// An object that is not any more what was listed gives ErrChanged: its
	// version and size are looked at when it is opened and again after each
	// read, so bytes that Done reports as good are those of the version.
	Submit(reads []*Read)
	// Close waits for the reads that are under way; those submitted after it
	// fail. It is idempotent.
	Close() error
}

// Settler is implemented by storages whose Stat may describe an object in a way that
// a change that comes at once does not show in.
type Settler interface {
	// Settled is Stat for what is going to be read: as List, it waits until a change
	// would show in the version.
	Settled(ctx context.Context, path string) (Object, error)
}

// Compare gives the difference of an object as it is now to what was listed, as
// an error that wraps ErrChanged, or nil. It looks at sizes, modification times, and
// at inode numbers where there was one in the listing.
func Compare(listed, now Object) error {
	switch {
	case now.SizeBytes != listed.SizeBytes:
		return fmt.Errorf("size is %d bytes, was %d: %w", now.SizeBytes, listed.SizeBytes, ErrChanged)
	case listed.Version.Inode != 0 && now.Version.Inode != listed.Version.Inode:
		return fmt.Errorf("another file is in its place: %w", ErrChanged)
	case now.Version.ModTimeNanos != listed.Version.ModTimeNanos:
		return fmt.Errorf("modification time differs: %w", ErrChanged)
	}
	return nil
}

// ErrChanged is wrapped by errors about objects that have changed or vanished
// since they were listed.
var ErrChanged = errors.New("changed since it was indexed: mount again to index it anew")

// ErrUnwanted is the error of reads that were called off.
var ErrUnwanted = errors.New("the read is not wanted any more")

// Error says which range of which object could not be read.
type Error struct {
	Object      string
	OffsetBytes int64
	SizeBytes   int64
	Err         error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s: bytes [%d, %d): %v", e.Object, e.OffsetBytes, e.OffsetBytes+e.SizeBytes, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ReadAt fills p from the object at off, or returns an error.
//
// When ctx ends first its error is returned at once, and p still belongs to the
// storage: the caller drops it and never looks at it again. So p is memory of
// the Go heap, which the pending read keeps alive.
func ReadAt(ctx context.Context, s Storage, o Object, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	done := make(chan error, 1)
	s.Submit([]*Read{{Object: o, OffsetBytes: off, Buf: p, Done: func(err error) { done <- err }}})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
