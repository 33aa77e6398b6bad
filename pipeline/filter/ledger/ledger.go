// Package ledger records, in a file next to the results of a filter, what each of them was made
// from: DST/.lsiofs-filter.
//
//	<sha256 of S> <sha256 of the filter> <sha256 of DST/S> <units in> <units out> <records out> <path>
//	…
//
// A line is written, and made durable, before its result gets its name. So a result is done if its
// line exists and the file has the sum in that line: a reader of the ledger must compare them. A
// process that is killed at any moment leaves a line without a result, or an incomplete line, which
// is ignored: only that shard is filtered again.
//
// Lines are appended, and the last one of a path counts. The lines before it list what else filters
// have made under that path: a process that is killed after a line leaves the previous result in
// place. A line whose sums are all zeros means that the path no longer has a result. In a path a
// backslash is written as two, and a newline as a backslash and n. If more than half of the lines
// are obsolete, the file is rewritten when it is opened.
package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// Prefix begins the names of all files in a results' directory that are not results.
	Prefix = ".lsiofs-filter"
	// TempPrefix begins the names of temporary files and directories.
	TempPrefix = Prefix + "-tmp-"
	lockName   = Prefix + "-lock"

	// maxBytes bounds the file: at 300 bytes per line that is 14 million shards.
	maxBytes = 4 << 30
)

// Ledger is the ledger of a directory. It is safe for concurrent use; at most one is open at a
// time, in any process.
type Ledger struct {
	dir  string
	lock *lock

	mu      sync.Mutex
	file    *os.File
	bytes   int64 // size of the complete lines in file
	entries entries
	err     error // set if the file can't be appended to
}

// Open opens the ledger of an existing directory, and removes temporary files that a killed process
// has left.
func Open(dir string) (*Ledger, error) {
	l := &Ledger{dir: dir}
	err := l.open()
	if err == nil {
		err = l.removeTemps()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Ledger) path() string { return filepath.Join(l.dir, Prefix) }

func (l *Ledger) open() (err error) {
	name := filepath.Join(l.dir, lockName)
	if l.lock, err = takeLock(name); errors.Is(err, errHeld) {
		return fmt.Errorf("%s: %w: wait for it, or end it", l.dir, err)
	} else if err != nil {
		return err
	}
	if l.file, err = os.OpenFile(l.path(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644); err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return fmt.Errorf("%s is not a ledger of a filter: it is not a regular file, or has more than %d bytes", l.path(), int64(maxBytes))
	}
	text := make([]byte, info.Size())
	if _, err := io.ReadFull(l.file, text); err != nil {
		return fmt.Errorf("read %s: %w", l.path(), err)
	}
	var lines int
	if l.entries, lines, l.bytes, err = parse(text); err != nil {
		return fmt.Errorf("%s: %w: it is damaged: move it and the results away, to have them made again", l.path(), err)
	}
	if l.bytes < info.Size() {
		if err := l.cut(); err != nil {
			return err
		}
	}
	if lines > 2*l.entries.lines()+16 {
		return l.rewrite()
	}
	return syncDir(l.dir) // for the ledger's name
}

// cut truncates the file after the complete lines.
func (l *Ledger) cut() error {
	if err := l.file.Truncate(l.bytes); err != nil {
		return fmt.Errorf("cut the unfinished line off %s: %w", l.path(), err)
	}
	return nil
}

func (l *Ledger) removeTemps() error {
	list, err := filepath.Glob(filepath.Join(globEscaped(l.dir), TempPrefix+"*"))
	for _, temp := range list {
		err = errors.Join(err, os.RemoveAll(temp))
	}
	return err
}

// globEscaped returns a pattern that matches only path.
func globEscaped(path string) string {
	var b []byte
	for i := range len(path) {
		if slices.Contains([]byte(`*?[\`), path[i]) {
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

// Get returns the last entry of a path.
func (l *Ledger) Get(path string) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries.last(path)
}

// Made reports whether a filter has made that result under a path: in the last entry, or one
// shortly before it.
func (l *Ledger) Made(path string, result Sum) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries[path], func(e Entry) bool { return e.Result == result })
}

// Paths returns the paths with entries, sorted.
func (l *Ledger) Paths() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.entries))
}

// Add adds entries durably. After a write error none of them counts.
func (l *Ledger) Add(entries ...Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.add(entries)
}

// Remove removes the entries of paths durably.
func (l *Ledger) Remove(paths ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	removed := make([]Entry, 0, len(paths))
	for _, path := range paths {
		if _, known := l.entries[path]; known {
			removed = append(removed, Entry{Path: path})
		}
	}
	return l.add(removed)
}

// add appends lines. It is called with l.mu held.
func (l *Ledger) add(added []Entry) error {
	if l.err != nil {
		return l.err
	}
	var text []byte
	for i := range added {
		if err := checkPath(added[i].Path); err != nil {
			return err
		}
		text = added[i].AppendLine(text)
	}
	_, err := l.file.WriteAt(text, l.bytes)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		// On a full disk, a part may be written. The incomplete rest is truncated; if that fails,
		// nothing may be appended after it.
		l.err = l.cut()
		return fmt.Errorf("write %s: %w", l.path(), err)
	}
	l.bytes += int64(len(text))
	for _, e := range added {
		l.entries.add(e)
	}
	return nil
}

// rewrite rewrites the file. It is called before l is shared.
func (l *Ledger) rewrite() (err error) {
	var text []byte
	for _, path := range slices.Sorted(maps.Keys(l.entries)) {
		for _, e := range l.entries[path] {
			text = e.AppendLine(text)
		}
	}
	f, err := os.CreateTemp(l.dir, TempPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(f.Name(), l.path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s again: %w", l.path(), err), f.Close(), os.Remove(f.Name()))
	}
	old := l.file
	l.file, l.bytes, l.err = f, int64(len(text)), nil
	return errors.Join(old.Close(), syncDir(l.dir))
}

// Close closes the files, and releases the lock.
func (l *Ledger) Close() (err error) {
	if l.file != nil {
		err = l.file.Close()
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.release())
	}
	return err
}

// syncDir makes the names in a directory durable, if the file system supports it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// lock keeps other filters out of a directory: other processes by a record lock on its file
// (fcntl), other ledgers of this process by held.
//
// It uses neither flock nor a lock of the open file description: a child inherits those, and has
// them from its fork until its exec. A filter starts programs all the time. If it is killed between
// the two, the child still has the lock when the next filter starts, which would refuse to run
// because of a filter that no longer exists. The kernel drops a record lock as soon as the process
// that took it has ended, whatever its children have open. It also returns the number of that
// process if the lock is held. On NFS the server treats both kinds the same way.
//
// A record lock has two traps. It does not exclude the process that holds it, and it is dropped
// when that process closes any descriptor of the file. Therefore a file in held is not even opened.
type lock struct {
	file *os.File
	id   fileID
}

type fileID struct{ device, inode uint64 }

// held has the files that this process has locked. Like the kernel's record locks, it is per
// process.
var held = struct {
	sync.Mutex
	files map[fileID]bool
}{files: map[fileID]bool{}}

// errHeld means that another filter has the lock.
var errHeld = errors.New("another lsiofs filter is writing there")

// takeLock locks the file name, which it creates if necessary. It does not wait: the error is
// errHeld, with the process that holds the lock if the kernel knows it.
func takeLock(name string) (*lock, error) {
	held.Lock()
	defer held.Unlock()
	var st unix.Stat_t
	if unix.Lstat(name, &st) == nil && held.files[fileID{uint64(st.Dev), st.Ino}] {
		return nil, fmt.Errorf("%w (this process, %d)", errHeld, os.Getpid())
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	if err = setLock(f); err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &lock{f, fileID{uint64(st.Dev), st.Ino}}
	held.files[l.id] = true
	return l, nil
}

func setLock(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &whole)
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) { // POSIX allows both
		if err != nil {
			err = fmt.Errorf("lock %s, so that no other filter writes there: %w", f.Name(), err)
		}
		return err
	}
	// A process on another machine, or in a namespace that is not below ours, has no number here.
	if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &whole) == nil && whole.Type != unix.F_UNLCK && whole.Pid > 0 {
		return fmt.Errorf("%w (process %d)", errHeld, whole.Pid)
	}
	return errHeld
}

// release releases the lock: it goes with the descriptor.
func (l *lock) release() error {
	held.Lock()
	defer held.Unlock()
	delete(held.files, l.id)
	return l.file.Close()
}
