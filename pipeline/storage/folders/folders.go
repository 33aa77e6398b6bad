// Package folders is storage whose objects are directories. Each reads as the archive
// that would hold the regular files directly in it.
//
//	object   │ header │ a.jpg … │ zeros │ header │ b.jpg … │ zeros │
//	file     0        └ its contents      1
//
// The path of an object is its directory's, relative to the root; "." is the root
// itself. Files are in bytewise order of their names. What surrounds their contents
// comes from a Framing, a pure function of path and size. So an object's size is known
// from the directory alone. Its version is a hash of the names, sizes, times and inodes
// in it.
//
// # The table
//
// List looks at every file, on several goroutines, and stores the result in a table
// outside the Go heap: an unnamed file in the index directory, mapped. Each List makes a
// new table, and no other process reads it, so it needs no format version. Numbers are
// native 64-bit words.
//
//	segments  one a directory: for each file 5 words (offset in the object, size,
//	          mtime in ns, inode, where its name ends), then the names
//	paths     of the directories
//	entries   9 words a directory, by path: where its path begins and its length,
//	          where its segment begins and its length, files, size of the object,
//	          first and second half of the version, the number of its first checksum
//
// A disk may lose what was written, at once or later. If the disk does not accept the
// table, or if its directory is remote, the table is kept in memory. Checksums of its
// blocks are kept in memory too, and every block that a read uses is compared with its
// checksum. A block that differs, or can't be read (SIGBUS), is an error of that read.
//
// # Reading
//
// A bounded number of goroutines read files; they end when there is nothing to read.
// Each file is opened, read, checked and closed in one go, so nothing of it stays open.
// The check comes last. So the bytes that are passed on are those of the listed version,
// as far as the file system can tell (package identity). An error names the file. Files
// are read through the page cache.
//
// An open follows no link (RESOLVE_NO_SYMLINKS), which costs nothing. The target of a
// link is looked at before it is opened, which takes 1 to 1.5 µs more. If a directory's
// owner has replaced a file by a pipe, the pipe is opened without waiting and given up.
// The same happens with a device, which needs root and a file system that permits
// devices.
//
// Two kinds of goroutines share the work:
//
//   - The first to open a file must not wait (RESOLVE_CACHED, RWF_NOWAIT). There is one such
//     goroutine a core. That keeps the cores busy when the kernel has everything in memory.
//     More of them would only delay readers: a goroutine whose system calls never wait keeps
//     its processor for 10 ms.
//   - A file that is not in memory goes to the others, up to 32, which may wait for it; the
//     kernel has begun to read it by then. If the kernel or the file system can't say what
//     is in memory, all goroutines may wait.
//
// A goroutine that has been at one file for more than a second no longer counts against
// these bounds, and others do the rest of its work. While a file has some of these, no
// more of its reads are begun until one ends. So a file that hangs delays its own
// readers only.
//
// Plain system calls do this. A C program with two threads and 10⁵ files of 12 KiB in
// the page cache took 4.2 µs of time and 8.1 µs of CPU a file (medians of 9 rounds of
// open, read, stat and close, whether by path, relative to the directory, or without
// waiting). With batches of 64 opens, 64 reads and 64 closes through a ring for each
// thread it took 3.9 and 7.4 µs. stat remained a call of its own there, for the kernel
// hands each statx of a ring to a thread.
package folders

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/uring"
)

// Framing is what surrounds a file in an object. It is safe for concurrent use.
type Framing interface {
	// HeaderBytes is the number of bytes that AppendHeader appends for a path of
	// pathBytes bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends what comes before a file's contents. path is relative to the
	// root, and valid during the call only.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes is the alignment of contents: they are filled up with zeros to a
	// multiple of it.
	AlignBytes() int64
}

// Storage is a storage.Storage of directories.
type Storage struct {
	root     string // absolute
	fd       int    // of the root, which files are opened relative to
	framing  Framing
	never    *identity.Never
	indexDir string
	leaves   func(dir string, name []byte) (reason string) // LeaveOut; nil: nothing
	most     int                                           // goroutines that may wait for a disk at a time, with a file or directory open
	cores    int                                           // there were when it was opened
	taken    int                                           // jobs that a goroutine takes at a time
	openers  sync.Pool                                     // of *opener
	reads    atomic.Uint64                                 // of files, that have succeeded
	errors   atomic.Uint64                                 // the others
	bytes    atomic.Uint64                                 // of contents, in reads
	blind    atomic.Bool                                   // the kernel or the file system can't say what is in memory

	device    uint64      // that the root lies on; it stays, as fd is open
	remote    bool        // see filesystem.Traits
	noOpenat2 atomic.Bool // a sandbox does not let it pass

	mu       sync.Mutex
	quiet    sync.Cond // underWay has become 0, or there are no goroutines
	table    *table    // of the last List; nil before
	omitted  []storage.Omission
	underWay int        // reads that were submitted and are not done
	readings []*reading // that are free, as many as have been under way at a time
	closed   bool
	parts    queue // of reads that were begun: they come first
	jobs     queue
	lookers  crew // that does these
	missed   queue
	waiters  crew // that does these
	workers  map[*worker]struct{}
	spare    []*worker          // that are used again
	stalls   map[fileKey]*stall // files that hang
	watch    *time.Timer        // calls look; nil before the first read
	watching bool               // it will

	stuck      atomic.Int64 // workers, written with mu held
	mostStuck  int64
	stuckAfter time.Duration
	before     func(fileKey) // nil but in tests: called before a file is opened
}

var (
	_ storage.Storage  = (*Storage)(nil)
	_ storage.Outliner = (*Storage)(nil)
	_ storage.Omitter  = (*Storage)(nil)
	_ storage.Reporter = (*Storage)(nil)
	_ profile.Adjuster = (*Storage)(nil)
)

// Open gives the storage of the directories below root. The table is kept in indexDir;
// if that is "" or can't be written, in memory. Links below root do not lead to where
// identity.NeverVariable forbids.
func Open(root, indexDir string, framing Framing) (*Storage, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", root, err)
	}
	never, err := identity.NeverOf()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(absolute, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", &fs.PathError{Op: "open", Path: absolute, Err: err})
	}
	s := &Storage{root: absolute, fd: fd, framing: framing, never: never, indexDir: indexDir, cores: runtime.GOMAXPROCS(0), taken: takenJobs,
		waiters: crew{waits: true}, workers: map[*worker]struct{}{}, stalls: map[fileKey]*stall{}, stuckAfter: stuckAfter}
	s.most, s.mostStuck = mostOpen()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("dataset: %w", &fs.PathError{Op: "stat", Path: absolute, Err: err})
	}
	s.device = st.Dev
	if s.remote = uring.Remote(fd); s.remote {
		s.blind.Store(true) // an open may wait, whatever is in memory
		s.taken = 1         // and what is taken with it would wait, too
	}
	s.quiet.L = &s.mu
	return s, nil
}

// LeaveOut has files left out of their directories: those for which leaves, which may be called
// concurrently, returns a reason. It is called before the first List.
func (s *Storage) LeaveOut(leaves func(dir string, name []byte) (reason string)) { s.leaves = leaves }

// Omitted implements storage.Omitter.
func (s *Storage) Omitted() []storage.Omission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.omitted
}

// maxOpen is how many files are open at a time by those who may wait for a disk: as
// many as a pool of preads has under way (package uring). Lookers, one a core, have
// one open each beside them.
const maxOpen = 32

// mostOpen is how many files are open at a time, beside those that hang, and how many
// of these: it leaves half of a small limit to others.
func mostOpen() (most int, hanging int64) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxOpen, maxOpen
	}
	return int(max(4, min(maxOpen, limit.Cur/4))), int64(max(4, min(maxStuck, limit.Cur/4)))
}

// Stat lists one directory and describes it. Anything but a directory with files in it
// does not exist for Stat.
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

// AdjustProfile implements profile.Adjuster: no gap is worth reading over, for each
// unwanted file would have to be opened.
func (s *Storage) AdjustProfile(p profile.Profile) profile.Profile {
	p.GapBytes = 0
	return p
}

// Status implements storage.Reporter. It counts reads of files, each of which was opened
// for its read.
func (s *Storage) Status() uring.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uring.Status{
		Engine: "files", Reason: "each file is opened, read and closed at once", InFlight: int64(s.underWay),
		Reads: s.reads.Load(), ReadBytes: s.bytes.Load(), Errors: s.errors.Load(), Stuck: s.stuck.Load(),
	}
}

// Close waits for the reads in flight and frees the table. It is idempotent.
func (s *Storage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed && s.fd < 0 {
		return nil
	}
	s.closed = true
	for s.underWay > 0 || len(s.workers) > 0 {
		s.quiet.Wait()
	}
	if s.fd < 0 {
		return nil
	}
	if s.watch != nil {
		s.watch.Stop()
	}
	err := unix.Close(s.fd)
	s.fd = -1
	if s.table != nil {
		s.table.drop()
		s.table = nil
	}
	return err
}
