// Package fileset implements a storage whose objects are directories, for datasets of many small
// files. Each directory is read as if it were an archive of the regular files directly in it.
//
//	object   │ header │ a.jpg … │ zeros │ header │ b.jpg … │ zeros │
//	file     0        └ its contents      1
//
// The path of an object is its directory's, relative to the root; "." is the root itself. Files are
// in bytewise order of their names. The headers come from a Framing, a pure function of path and
// size, so an object's size is known from the directory alone. Its version is a hash of the names,
// sizes, times and inodes in it.
//
// # The table
//
// List stats every file, on several goroutines, and stores the result in a table outside the Go
// heap: an unnamed file in the index directory, mapped. Each List makes a new table, and no other
// process reads it, so it needs no format version. Numbers are native 64-bit words.
//
//	segments  one per directory: for each file 5 words (offset in the object, size,
//	          mtime in ns, inode, where its name ends), then the names
//	paths     of the directories
//	entries   9 words per directory, by path: where its path begins and its length,
//	          where its segment begins and its length, files, size of the object,
//	          first and second half of the version, the number of its first checksum
//
// A disk may lose what was written, at once or later. If the table can't be written, or if its
// directory is remote, the table is kept in memory. Checksums of its blocks are kept in memory too,
// and every block that a read uses is compared with its checksum. A block that differs, or can't be
// read (SIGBUS), is an error of that read.
//
// # Reading
//
// Files are read by a bounded number of goroutines, which end when there is nothing to read. Each
// file is opened, read, checked and closed in one go, so nothing of it stays open. The check comes
// last. So the bytes that a read returns belong to the listed version, as far as the file system
// can tell (package filesystem). An error names the file. Files are read through the page cache.
//
// An open follows no link (RESOLVE_NO_SYMLINKS), which costs nothing. The target of a link is
// checked before it is opened, which takes 1 to 1.5 µs more. If a directory's owner has replaced a
// file by a pipe, the pipe is opened without waiting and closed again. The same happens with a
// device, which needs root and a file system that permits devices.
//
// Two kinds of goroutines share the work:
//
//   - The first to open a file must not wait (RESOLVE_CACHED, RWF_NOWAIT). There is one such
//     goroutine per core. That keeps the cores busy when the kernel has everything in memory. More
//     of them would only delay readers: a goroutine whose system calls never wait keeps its
//     processor for 10 ms.
//   - A file that is not in memory goes to the others, up to 32, which may wait for it; the kernel
//     has begun to read it by then. If the kernel or the file system can't report what is in
//     memory, all goroutines may wait.
//
// A file that hangs delays only its own readers (uring.Pool).
//
// This uses plain system calls. A C program with two threads and 10⁵ files of 12 KiB in the page
// cache took 4.2 µs of time and 8.1 µs of CPU per file (medians of 9 rounds of open, read, stat and
// close, whether by path, relative to the directory, or without waiting). With batches of 64 opens,
// 64 reads and 64 closes, through one ring per thread, it took 3.9 and 7.4 µs. stat remained a
// separate call, because the kernel hands each statx of a ring to a thread.
package fileset

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/uring"
)

// Framing produces the bytes around a file in an object. It is safe for concurrent use.
type Framing interface {
	// HeaderBytes returns the number of bytes that AppendHeader appends for a path of pathBytes
	// bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends the header that precedes a file's contents. path is relative to the
	// root, and valid only during the call.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes returns the alignment of contents: they are padded with zeros to a multiple of it.
	AlignBytes() int64
}

// Storage is a storage.Storage of directories.
type Storage struct {
	root     string // absolute
	fd       int    // the root, relative to which files are opened
	framing  Framing
	never    *filesystem.Never
	indexDir string
	leaves   func(dir string, name []byte) (reason string) // LeaveOut; nil: nothing
	most     int                                           // goroutines that may wait for a disk at a time, each with a file or directory open
	cores    int                                           // number of cores at the time of Open
	openers  sync.Pool                                     // of *opener
	reads    atomic.Uint64                                 // successful reads of files
	errors   atomic.Uint64                                 // failed ones
	bytes    atomic.Uint64                                 // of contents, that were read
	blind    atomic.Bool                                   // the kernel or the file system can't report what is in memory

	device    uint64      // device of the root; it can't change, because fd is open
	remote    bool        // see filesystem.Traits
	noOpenat2 atomic.Bool // a sandbox blocks it

	inflight storage.Inflight
	mu       sync.Mutex
	table    *table // from the last List; nil before
	omitted  []storage.Omission
	readings []*reading                // free ones, for reuse
	pool     *uring.Pool[fileKey, job] // shares mu
	lookers  *uring.Crew[fileKey, job] // parts of reads that were begun come first
	waiters  *uring.Crew[fileKey, job] // for files that lookers have missed

	before func(fileKey) // nil except in tests: called before a file is opened
}

var _ storage.Storage = (*Storage)(nil)

// Caps implements storage.Storage.
func (s *Storage) Caps() storage.Caps {
	return storage.Caps{Omitted: s.Omitted, Outline: s.Outline, Status: s.Status, AdjustProfile: s.AdjustProfile}
}

// Open returns the storage of the directories below root. The table is stored in indexDir, or in
// memory if that is "" or can't be written. Links below root must not lead to what
// filesystem.NeverVariable forbids.
func Open(root, indexDir string, framing Framing) (*Storage, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", root, err)
	}
	never, err := filesystem.NeverOf()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(absolute, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", &fs.PathError{Op: "open", Path: absolute, Err: err})
	}
	s := &Storage{root: absolute, fd: fd, framing: framing, never: never, indexDir: indexDir, cores: runtime.GOMAXPROCS(0)}
	s.hire()
	s.most, s.pool.MaxStuck = mostOpen()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("dataset: %w", &fs.PathError{Op: "stat", Path: absolute, Err: err})
	}
	s.device = st.Dev
	if s.remote = uring.Remote(fd); s.remote {
		s.blind.Store(true)                     // an open may wait, even if everything is in memory
		s.lookers.Batch, s.waiters.Batch = 1, 1 // jobs taken together would wait, too
	}
	return s, nil
}

// LeaveOut sets which files are left out of their directories: those for which leaves returns a
// reason. leaves may be called concurrently. LeaveOut is called before the first List.
func (s *Storage) LeaveOut(leaves func(dir string, name []byte) (reason string)) { s.leaves = leaves }

// Omitted implements storage.Caps.
func (s *Storage) Omitted() []storage.Omission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.omitted
}

// maxOpen is how many files the waiters, which may wait for a disk, have open at a time: as many as
// a pool of preads has in flight (package uring). Lookers, one per core, have one file open each in
// addition.
const maxOpen = 32

// mostOpen returns how many files are open at a time, not counting those that hang, and how many
// may hang. It leaves half of a low limit to other users.
func mostOpen() (most, hanging int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxOpen, maxOpen
	}
	return int(max(4, min(maxOpen, limit.Cur/4))), int(max(4, min(uring.MaxStuck, limit.Cur/4)))
}

// Stat lists one directory and describes it. For Stat, anything but a directory with files in it
// does not exist.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	if err := ctx.Err(); err != nil {
		return storage.Object{}, err
	}
	missing := func(why string) error {
		return &fs.PathError{Op: "stat", Path: filepath.Join(s.root, path), Err: fmt.Errorf("%s: %w", why, fs.ErrNotExist)}
	}
	if !filepath.IsLocal(path) {
		return storage.Object{}, missing("not a path below the dataset")
	}
	l := newListing(ctx, s, nil)
	g := gathering{listing: l}
	segment, err := g.directory(below{path: path})
	switch {
	case err == unix.ENOENT || err == unix.ENOTDIR:
		return storage.Object{}, missing("not a directory")
	case err != nil:
		return storage.Object{}, fmt.Errorf("%s: %w", filepath.Join(s.root, path), err)
	case segment.files == 0:
		return storage.Object{}, missing("a directory without files")
	}
	return segment.object(path), nil
}

// AdjustProfile implements storage.Caps: it is never worth reading over a gap, because each
// unwanted file would have to be opened.
func (s *Storage) AdjustProfile(p storage.Profile) storage.Profile {
	p.GapBytes = 0
	return p
}

// Status implements storage.Caps. It counts reads of files; each file was opened for its read.
func (s *Storage) Status() uring.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uring.Status{
		Engine: "files", Reason: "each file is opened, read and closed at once", InFlight: int64(s.inflight.Reads()),
		Reads: s.reads.Load(), ReadBytes: s.bytes.Load(), Errors: s.errors.Load(), Stuck: s.pool.Stuck(),
	}
}

// Close waits for the reads in flight and frees the table. It is idempotent.
func (s *Storage) Close() error {
	s.inflight.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pool.Close()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	if s.table != nil {
		s.table.drop()
		s.table = nil
	}
	return err
}

// reading is a read in progress. It is reused, so that reading allocates nothing.
type reading struct {
	read     *storage.Read
	accepted bool // submitted before Close
	table    *table
	segment  segment
	files    [2]int       // the first file that overlaps the range, and the one after the last
	pending  atomic.Int32 // jobs that are not done
	failed   atomic.Pointer[error]
}

// job is a read that has not been looked up yet (to is 0), or the files from … to-1 of one.
type job struct {
	reading  *reading
	from, to int
	missed   bool // not in the kernel's memory; one file, for which the worker may have to wait
}

// jobFiles is the most files in a job: the rest of a large read is left to other goroutines,
// because each open may wait for a disk.
const jobFiles = 8

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		x := s.newReading()
		x.read, x.accepted, x.table = r, open, s.table
		if x.table != nil {
			x.table.hold()
		}
		x.pending.Store(1)
		s.lookers.Push(job{reading: x})
	}
	s.pool.Start()
}

// newReading returns a free reading. s.mu is held.
func (s *Storage) newReading() *reading {
	n := len(s.readings)
	if n == 0 {
		return new(reading)
	}
	x := s.readings[n-1]
	s.readings = s.readings[:n-1]
	return x
}

// miss leaves a file to the waiters.
func (s *Storage) miss(j job) {
	j.reading.pending.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.Push(j)
	s.pool.Start()
}

// begin finds the files of a read, and returns a job for the first ones; the others become separate
// jobs.
func (s *Storage) begin(o *opener, x *reading) (job, error) {
	r := x.read
	if !x.accepted {
		return job{}, storage.ErrClosed
	}
	err := r.Check()
	switch {
	case err != nil:
		return job{}, err
	case x.table == nil:
		return job{}, fmt.Errorf("nothing was listed: %w", storage.ErrChanged)
	case r.Wanted != nil && !r.Wanted():
		return job{}, storage.ErrUnwanted
	}
	if x.segment, err = o.find(x.table, r.Object); err != nil {
		return job{}, err
	}
	from, to, err := x.table.locate(&x.segment, r.OffsetBytes, int64(len(r.Buf)), -1)
	if err != nil {
		return job{}, err
	}
	x.files = [2]int{from, to}
	first := job{reading: x, from: from, to: min(from+jobFiles, to)}
	if first.to < to {
		s.mu.Lock()
		defer s.mu.Unlock()
		for at := first.to; at < to; at += jobFiles {
			x.pending.Add(1)
			s.lookers.PushFirst(job{reading: x, from: at, to: min(at+jobFiles, to)})
		}
		s.pool.Start()
	}
	return first, nil
}

// file fills file i's part of a read's buffer: header, contents, zeros. If it must not wait it may
// fail with errMissed.
func (o *opener) file(x *reading, i int, waits bool) error {
	r := x.read
	found, err := o.lookUp(x.table, &x.segment, i)
	if err != nil {
		o.at([]byte("(unknown)"))
		return err
	}
	f, path := &found, o.path[:len(o.path)-1]
	if i == x.files[0] && f.offset > r.OffsetBytes || i == x.files[1]-1 && f.end < r.OffsetBytes+int64(len(r.Buf)) {
		return x.table.damaged() // the range of files was looked up unchecked
	}
	// part returns the bytes of the buffer between two offsets in the object, and how many bytes of
	// that range are before them.
	part := func(from, to int64) (p []byte, skipped int64) {
		low, high := max(from, r.OffsetBytes), min(to, r.OffsetBytes+int64(len(r.Buf)))
		if low >= high {
			return nil, 0
		}
		return r.Buf[low-r.OffsetBytes : high-r.OffsetBytes], low - from
	}
	contents := f.offset + o.storage.framing.HeaderBytes(len(path), f.size)
	if p, skipped := part(f.offset, contents); len(p) > 0 {
		o.header = o.storage.framing.AppendHeader(o.header[:0], path, f.size)
		copy(p, o.header[skipped:])
	}
	p, _ := part(contents+f.size, f.end)
	clear(p)
	p, skipped := part(contents, contents+f.size)
	if len(p) == 0 && f.size > 0 {
		return nil
	}
	return o.contents(f, p, skipped, waits)
}

func (x *reading) fail(err error) { x.failed.CompareAndSwap(nil, &err) }

// end counts a job as done, and reports to the read's submitter after the last one.
func (s *Storage) end(x *reading) {
	if x.pending.Add(-1) > 0 {
		return
	}
	r := x.read
	var err error
	if failed := x.failed.Load(); failed != nil {
		err = *failed
	}
	if x.table != nil {
		x.table.drop()
	}
	x.read, x.table, x.segment = nil, nil, segment{}
	x.failed.Store(nil)
	r.Done(r.Failure(err))
	s.mu.Lock()
	s.readings = append(s.readings, x)
	s.mu.Unlock()
	s.inflight.End()
}
