// Package storage defines the interface between lsiofs and the places where shards are stored, such
// as local files and S3: list objects, and read ranges of them.
//
//	List ──► Object (path, size, version)
//	Object, range ──► Read ──Submit──► bytes of that version, or an error ──► Done
//
// Each implementation is a package: local (files, through package uring), fileset (directories of
// files, read as archives), arrays (arrays split into several files, read as one), crops (crops of
// Zarr arrays), crops/refs (ranges of files, read as a Zarr hierarchy) and remote (objects of
// services: packages s3 and web). Package diskcache puts a disk cache in front of another storage.
// storagetest is the test suite that every implementation passes, except arrays, whose objects are
// not files. Wrappers (Retrying, faults) are Storages themselves. What only some storages can do,
// such as mapping objects or taking hints, is in Caps. A Reader reads one object.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
)

// Version identifies the contents of an object when it was listed. Equal versions of an object have
// the same bytes, as far as the storage can tell.
//
// Times are in nanoseconds. A field is 0 if the storage does not know it or if it is not permanent
// there. ChangeTimeNanos is for indexes, which outlast a run: it also shows a write after which the
// modification time was set back. But it changes for lesser reasons too (renames, permissions), so
// reads don't compare it.
type Version struct {
	ModTimeNanos    int64
	ChangeTimeNanos int64
	Inode           uint64
}

// Object is one object as it was listed. Path is relative to the dataset's root, with
// components joined by '/'.
type Object struct {
	Path      string
	SizeBytes int64
	Version   Version
}

// Read is a request for one range of one object.
//
// Buf is filled with the len(Buf) bytes from OffsetBytes on; it must not be empty. It
// belongs to the storage until Done is called.
//
// Done is called exactly once, with nil or an error; after an error Buf's contents are
// undefined. A read is never partial. Done is called from a goroutine of the storage,
// never from within Submit. It must not block and must not call Close; it may call
// Submit. Errors are *Error, except ErrUnwanted.
//
// Wanted, if set, is called before the read begins, perhaps more than once, on the same goroutines
// as Done. Once it returns false it is not called again: Done gets ErrUnwanted, and nothing more is
// read. This lets a submitter cancel reads that wait for their turn; reads that have begun
// complete.
//
// Epoch is the reader's, for storages whose bytes depend on it (package crops); others ignore it.
type Read struct {
	Object      Object
	OffsetBytes int64
	Epoch       uint64
	Buf         []byte
	Wanted      func() bool // nil means always wanted
	Done        func(err error)
}

// Storage lists and reads objects. Its methods may be called concurrently.
type Storage interface {
	// List calls visit for every object below the root whose path match accepts, in no
	// particular order, and stops at the first error. visit is not called concurrently.
	//
	// match is also called for directories (isDir, path without trailing slash); a directory that
	// it rejects is not entered. Files and directories whose names begin with a dot are skipped.
	// Symbolic links to files are followed, those to directories are not. Anything else, such as a
	// pipe, is not visited, though match may be called for it.
	//
	// An object is visited only when any later change would show in its version. After a recent
	// change, List waits for that, up to some seconds if the file system's times are coarse.
	List(ctx context.Context, match func(path string, isDir bool) bool, visit func(Object) error) error
	// Stat describes one object as it is now. If it does not exist, the error wraps fs.ErrNotExist;
	// if something other than a file has that name, the error also wraps ErrNoFile.
	Stat(ctx context.Context, path string) (Object, error)
	// Submit hands reads over and returns without waiting for their bytes. The caller may reuse the
	// slice, and may hold locks that Done takes. A read of an object that is no longer the one that
	// was listed fails with ErrChanged: version and size are checked when the object is opened and
	// again after each read. So if Done gets nil, the bytes belong to that version.
	Submit(reads []*Read)
	// Close waits for the reads in flight; reads submitted after it fail. It is
	// idempotent.
	Close() error
	// Caps returns what else the storage can do. It always returns the same capabilities.
	Caps() Caps
}

// Compare compares an object as it is now with the listed one. It returns an error that wraps
// ErrChanged and states how they differ, or nil. It compares sizes, modification times, and inode
// numbers if the listing has them. It does not compare change times: hard links and chmod change
// these too. So a file that is rewritten in place and given its old modification time is noticed
// only when it is indexed again.
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

// ErrChanged is wrapped by errors about objects that have changed or vanished since they
// were listed.
var ErrChanged = errors.New("changed since it was indexed: mount or run again to index it anew")

// ErrNoFile is wrapped, in addition to fs.ErrNotExist, by errors of Stat about a name that exists
// but is not an object: a directory, a pipe, a socket or a device.
var ErrNoFile = errors.New("not a regular file")

// ErrUnwanted is the error of reads that were cancelled.
var ErrUnwanted = errors.New("the read is not wanted any more")

// Error is about a range of an object that could not be read. No bytes arrived, so it is not about
// their contents. Only bytes that arrived can be damaged, and then the error is
// format.CorruptError: only damage may be left out of a dataset, counted, and reported by a
// verification. Every other error ends the command, because no dataset may depend on what could be
// reached when it was indexed.
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
// If ctx ends first, ctx's error is returned at once, and p still belongs to the storage: the
// caller must drop it and never look at it again. So p must be memory from the Go heap, which the
// pending read keeps alive.
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

// IsFault reports whether a recovered panic means that mapped memory could not be read
// (debug.SetPanicOnFault). Any other panic is a bug, and the caller must panic again.
func IsFault(p any) bool {
	fault, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	return ok && fault.Addr() >= 4096
}

// Faulted runs touch, which accesses mapped memory, and reports whether that memory was gone: the
// goroutine then panics instead of the process getting a signal. Other panics propagate.
func Faulted(touch func()) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !IsFault(p) {
			panic(p) // a bug
		}
		gone = true
	}()
	touch()
	return false
}

// Damage is a damaged place in a shard. Record, OffsetBytes (in the decoded shard) and RawOffset
// (in the file, of the damaged member) are -1 if they don't apply.
type Damage struct {
	Shard                          string
	Record, OffsetBytes, RawOffset int64
	Reason                         string
}

// MaxDamages is the most places that a DamagedError lists.
const MaxDamages = 1000

// DamagedError rejects a dataset of which nothing would be left without the damaged parts. The
// catalog fills in Dataset and Format; a mixture fills in the name of the source.
type DamagedError struct {
	Source  string // "" if the dataset is not a mixture
	Dataset string
	Format  string
	Shards  int
	Damages []Damage // at most MaxDamages, at least one
	Total   uint64   // including those not listed
	Err     error    // the text, which names one of them
}

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }

// ErrClosed is the error of reads that are submitted after Close. It wraps fs.ErrClosed.
var ErrClosed = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)

var errEmptyBuffer = errors.New("a read needs a buffer")

// Check returns an error if r is invalid whatever the object is: its buffer is empty, or its range
// is not inside the object.
func (r *Read) Check() error {
	switch size := int64(len(r.Buf)); {
	case size == 0:
		return errEmptyBuffer
	case r.OffsetBytes < 0 || size > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-size:
		return fmt.Errorf("the range is not inside of the object, which has %d bytes", r.Object.SizeBytes)
	}
	return nil
}

// Failure returns err as an *Error with r's object and range. It returns nil and ErrUnwanted as
// they are.
func (r *Read) Failure(err error) error {
	if err == nil || err == ErrUnwanted {
		return err
	}
	return &Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
}

// Inflight counts the reads that were submitted to a storage and whose Done has not returned, so
// that Close can wait for them. Its zero value is open. Its methods may be called concurrently,
// also with the storage's own locks held, except for Close.
type Inflight struct {
	mu     sync.Mutex
	idle   sync.Cond // signals that reads has become 0
	reads  int
	closed bool
}

// Begin counts n reads and reports whether the storage is open. If it is not, they count as well:
// the storage completes them with ErrClosed, and calls End for them.
func (f *Inflight) Begin(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads += n
	return !f.closed
}

// End is called for each counted read after its Done has returned.
func (f *Inflight) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads--
	if f.reads == 0 && f.closed {
		f.idle.Broadcast()
	}
}

// Reads returns the number of reads in flight.
func (f *Inflight) Reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// Closed reports whether Close was called.
func (f *Inflight) Closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Close makes Begin return false from now on, and waits until no read is in flight. It may be
// called again.
func (f *Inflight) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.idle.L = &f.mu
	for f.reads > 0 {
		f.idle.Wait()
	}
}

// DescriptorShare is a part of the file descriptors that a process may have (RLIMIT_NOFILE, ulimit
// -n): one in this many. They are divided among the parts that keep many files open. At least half of
// them are left for FUSE, connections, readers, spools and everything else:
//
//	                        Files  Mappings  Cache  Copies  CopyMappings
//	of the limit              1/4       1/4    1/8    1/16          1/16
//	a dataset on a disk         ×         ×                                1/2
//	on a network's, cached      ×              ×       ×             ×     1/2
//	at a service, cached                       ×       ×             ×     1/4
//
// Files on network file systems are not mapped. The limit is the soft one; the Go runtime raises it
// to the hard one when the process starts.
type DescriptorShare uint64

const (
	FilesShare        DescriptorShare = 4  // of a dataset: open for reads
	MappingsShare     DescriptorShare = 4  // likewise, mapped
	CacheShare        DescriptorShare = 8  // for a cache's objects, two each
	CopiesShare       DescriptorShare = 16 // for a cache's objects that are read like local files
	CopyMappingsShare DescriptorShare = 16 // likewise, mapped
)

// Of returns the share of the current limit, at least least and at most most; it is most if the
// limit is unknown.
func (s DescriptorShare) Of(least, most int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return s.of(limit.Cur, least, most)
}

func (s DescriptorShare) of(limit uint64, least, most int) int {
	return max(least, int(min(uint64(most), limit/uint64(s))))
}
