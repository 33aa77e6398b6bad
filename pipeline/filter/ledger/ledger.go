// Package ledger keeps, in a file beside the results of a filter, of what each of them was
// made: DST/.lsiofs-filter.
//
//	<sha256 of S> <sha256 of the filter> <sha256 of DST/S> <units in> <units out> <records out> <path>
//	…
//
// A line is written before its result gets its name, and is durable by then. So a result
// is done where its line is there and the file has the sum of that line: whoever reads the
// ledger compares. A process that is killed at any moment leaves a line without a result,
// or half a line, which is passed over: that shard is filtered again, and no other one.
//
// Lines are added at the end, and the last one of a path counts. Those before it say what
// else a filter has made under that path: a process that is killed behind a line leaves the
// result before in place. One whose sums are all zeros says that the path has no result any
// more. In a path a backslash is written as two, and the end of a line as a backslash and n.
// Where the file has twice as many lines as are of use, it is written anew when it is opened.
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
	// Prefix is that of the names of all files in a results' directory that are no
	// results.
	Prefix = ".lsiofs-filter"
	// TempPrefix is that of files and directories on their way.
	TempPrefix = Prefix + "-tmp-"
	lockName   = Prefix + "-lock"

	// maxBytes bounds the file: at 300 bytes a line that is 14 million shards.
	maxBytes = 4 << 30
)

// Ledger is the ledger of a directory. It is safe for concurrent use; at most one is open
// at a time, in any process.
type Ledger struct {
	dir  string
	lock *lock

	mu      sync.Mutex
	file    *os.File
	bytes   int64 // of the whole lines in file
	entries entries
	err     error // the file can't be added to
}

// Open opens the ledger of a directory, which is there, and removes what a process that
// was killed has left on its way.
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
	return syncDir(l.dir) // the ledger's name
}

// cut takes off what is behind the whole lines.
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

// globEscaped is a path as a pattern that only it matches.
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

// Get gives the last entry of a path.
func (l *Ledger) Get(path string) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries.last(path)
}

// Made says whether a filter has made such a result under a path: that of the last entry, or
// one shortly before it.
func (l *Ledger) Made(path string, result Sum) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries[path], func(e Entry) bool { return e.Result == result })
}

// Paths are those that have entries, sorted.
func (l *Ledger) Paths() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.entries))
}

// Add adds entries, which are durable when it returns. After an error of writing none of
// them counts.
func (l *Ledger) Add(entries ...Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.add(entries)
}

// Remove removes the entries of paths. It is durable when it returns.
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

// add adds lines. l.mu is held.
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
		// A full disk takes a part of it. What is left is no whole line, unless it can't
		// be taken off: then nothing may be added behind it.
		l.err = l.cut()
		return fmt.Errorf("write %s: %w", l.path(), err)
	}
	l.bytes += int64(len(text))
	for _, e := range added {
		l.entries.add(e)
	}
	return nil
}

// rewrite writes the file anew. Nobody else knows l yet.
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

// Close closes the files, and lets another filter write there.
func (l *Ledger) Close() (err error) {
	if l.file != nil {
		err = l.file.Close()
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.release())
	}
	return err
}

// syncDir makes the names in a directory durable, where it can.
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
