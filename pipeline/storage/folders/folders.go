// Package folders is storage whose objects are directories: each reads as the
// archive that would hold the regular files directly in it.
//
//	object   │ header │ a.jpg … │ zeros │ header │ b.jpg … │ zeros │
//	file     0        └ its contents      1
//
// The path of an object is its directory's, relative to the root, "." for the
// root itself. Files are in bytewise order of their names; what is around their
// contents is a Framing's, a pure function of path and size. So an object's size
// is known from the directory alone. Its version is a hash of the names, sizes,
// times and inodes in it.
//
// # The table
//
// List looks at every file, on some goroutines, and keeps what it finds in a
// table outside of the Go heap: a file without a name in the index directory,
// mapped. It is made anew by each List and never read by another process, so it
// needs no version. Numbers are native 64-bit words.
//
//	segments  one a directory: for each file 5 words (offset in the object, size,
//	          mtime in ns, inode, where its name ends), then the names
//	paths     of the directories
//	entries   9 words a directory, by path: where its path begins and its length,
//	          where its segment begins and its length, files, size of the object,
//	          first and second half of the version, the number of its first checksum
//
// A disk may lose what was written, then or later. So a table that its disk does not
// take is kept in memory, as is one whose directory is remote; and each block of it
// has a checksum, in memory, which all that a read goes by is compared with. What is
// not as it was written, or can't be read (SIGBUS), is an error of that read.
//
// # Reading
//
// A file is opened, read, looked at and closed in one go by one of a bounded
// number of goroutines, which end when nothing is to be read: nothing of a file
// stays behind. It is looked at last, so bytes that are handed on are those of
// the version that was listed, as far as the file system can tell (package
// identity). An error names the file. Files go through the page cache.
//
// An open follows no link (RESOLVE_NO_SYMLINKS), which costs nothing; what is behind
// a link is looked at before it is opened, which takes 1 to 1.5 µs more. A pipe that
// the owner of a directory has put in the place of a file is opened, without waiting,
// and given up; so is a device, which takes root, and a file system that has those.
//
// Who opens a file first may not wait (RESOLVE_CACHED, RWF_NOWAIT), and there is
// one such looker a core: they keep the cores busy when the kernel has everything
// in memory, and more would only keep readers waiting, as a goroutine whose system
// calls never wait keeps its processor for 10 ms. What they miss the kernel begins
// to read, and it is left to those who may wait for it, up to 32 of them. Where the
// kernel or the file system can't say what is in memory, all may wait.
//
// Who has been at one file for more than a second does not count any more, and what
// it was to do beside it is done by others; of a file that has some of these no more
// reads are begun until one ends. So a file that hangs holds up its own readers alone.
//
// Plain system calls do this. With 10⁵ files of 12 KiB in the page cache two
// threads of a C program took, of time and of CPU, 4.2 and 8.1 µs a file (medians of 9 rounds; of open,
// read, stat, close, whether by path, relative to the directory, or not waiting); with batches of 64
// opens, 64 reads and 64 closes through a ring a thread 3.9 and 7.4, stat still by a call
// of its own, because the kernel hands each statx of a ring to a thread.
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
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/uring"
)

// Framing is what a file has around it in an object. It is safe for concurrent
// use.
type Framing interface {
	// HeaderBytes is how many bytes AppendHeader appends for a path of so many
	// bytes.
	HeaderBytes(pathBytes int, sizeBytes int64) int64
	// AppendHeader appends what comes before the contents of a file. path is
	// relative to the root, and valid during the call only.
	AppendHeader(dst, path []byte, sizeBytes int64) []byte
	// AlignBytes is what contents are filled up to a multiple of, with zeros.
	AlignBytes() int64
}

// Storage is a storage.Storage of directories.
type Storage struct {
	root     string // absolute
	fd       int    // of the root, which files are opened relative to
	framing  Framing
	indexDir string
	most     int           // goroutines that may wait for a disk at a time, with a file or directory open
	cores    int           // there were when it was opened
	taken    int           // jobs that a goroutine takes at a time
	openers  sync.Pool     // of *opener
	reads    atomic.Uint64 // of files, that have succeeded
	errors   atomic.Uint64 // the others
	bytes    atomic.Uint64 // of contents, in reads
	blind    atomic.Bool   // the kernel or the file system can't say what is in memory

	device    uint64      // that the root lies on; it stays, as fd is open
	remote    bool        // see filesystem.Traits
	noOpenat2 atomic.Bool // a sandbox does not let it pass

	mu       sync.Mutex
	quiet    sync.Cond  // underWay has become 0, or there are no goroutines
	table    *table     // of the last List; nil before
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
	_ storage.Reporter = (*Storage)(nil)
	_ profile.Adjuster = (*Storage)(nil)
)

// Open gives the storage of the directories below root. The table is kept in
// indexDir, in memory where that is "" or can't be written.
func Open(root, indexDir string, framing Framing) (*Storage, error) {
	absolute, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", root, err)
	}
	fd, err := unix.Open(absolute, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", &fs.PathError{Op: "open", Path: absolute, Err: err})
	}
	s := &Storage{root: absolute, fd: fd, framing: framing, indexDir: indexDir, cores: runtime.GOMAXPROCS(0), taken: takenJobs,
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

// Stat lists one directory and describes it. Whatever is no directory with
// files in it does not exist for it.
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
	segment, err := g.directory(path)
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

// AdjustProfile implements profile.Adjuster: no gap is worth reading across, since
// what nobody wants would be a file to open.
func (s *Storage) AdjustProfile(p profile.Profile) profile.Profile {
	p.GapBytes = 0
	return p
}

// Status implements storage.Reporter. The reads are of files, each of which was
// opened for it.
func (s *Storage) Status() uring.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uring.Status{
		Engine: "files", Reason: "each file is opened, read and closed at once", InFlight: int64(s.underWay),
		Reads: s.reads.Load(), ReadBytes: s.bytes.Load(), Errors: s.errors.Load(), Stuck: s.stuck.Load(),
	}
}

// Close waits for the reads that are under way and frees the table. It is
// idempotent.
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
