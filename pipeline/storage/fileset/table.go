package fileset

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime/debug"
	"sort"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	fileWords  = 5
	fileBytes  = fileWords * 8
	entryWords = 9
	entryBytes = entryWords * 8
)

func word(b []byte, i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }

// segment is one directory: its files' words and their names. It never changes once it was made.
// But if it is stored on a disk it may come back damaged, so what is read from it is checked (see
// opener.lookUp).
type segment struct {
	bytes     []byte
	sums      []uint64 // of its blocks, nil if there is nothing to check
	files     int
	sizeBytes int64 // of the object
	version   xxh3.Uint128
}

// names returns the names, which follow the words.
func (g *segment) names() []byte { return g.bytes[g.files*fileBytes:] }

// file is one file of a segment.
type file struct {
	offset int64 // of its header, in the object
	size   int64
	mtime  int64
	inode  uint64
	end    int64 // of the zeros after it, in the object

	nameFrom, nameTo uint64 // in the names
}

// file returns file number i, unchecked.
func (g *segment) file(i int) file {
	w := g.bytes[i*fileBytes:]
	f := file{offset: int64(word(w, 0)), size: int64(word(w, 1)), mtime: int64(word(w, 2)), inode: word(w, 3), end: g.sizeBytes, nameTo: word(w, 4)}
	if i > 0 {
		f.nameFrom = word(g.bytes[(i-1)*fileBytes:], 4)
	}
	if i+1 < g.files {
		f.end = int64(word(w[fileBytes:], 0))
	}
	return f
}

// offset returns where file i begins in the object.
func (g *segment) offset(i int) int64 { return int64(word(g.bytes[i*fileBytes:], 0)) }

// at returns the number of the file that contains the byte at offset, unchecked. The sizes of files
// are often similar, so it starts where the file would be if they were equal: a search over all
// files touches memory that is in no cache.
func (g *segment) at(offset int64) int {
	i := min(int(float64(offset)/float64(g.sizeBytes)*float64(g.files)), g.files-1)
	low, high := i, i+1 // low is at or before the file, high after it
	for step := 1; low > 0 && g.offset(low) > offset; step *= 2 {
		low, high = max(low-step, 0), low
	}
	for step := 1; high < g.files && g.offset(high) <= offset; step *= 2 {
		low, high = high, min(high+step, g.files)
	}
	return low + sort.Search(high-low, func(k int) bool { return g.offset(low+k) > offset }) - 1
}

func (f *file) object(path string) storage.Object {
	return storage.Object{Path: path, SizeBytes: f.size, Version: storage.Version{ModTimeNanos: f.mtime, Inode: f.inode}}
}

// object returns the directory as an object.
func (g *segment) object(path string) storage.Object {
	v := storage.Version{ModTimeNanos: int64(g.version.Hi), Inode: g.version.Lo}
	return storage.Object{Path: path, SizeBytes: g.sizeBytes, Version: v}
}

// table is the result of one List. It is immutable, and unmapped when it is not used any more.
type table struct {
	users   atomic.Int64
	dir     string // where it is stored; "": in memory
	data    []byte
	sums    []uint64 // of the blocks of everything stored there, nil in memory
	entries placed
	paths   placed
	count   int // of directories
}

// hold adds a user; the caller must be one, or hold Storage.mu.
func (t *table) hold() { t.users.Add(1) }

func (t *table) drop() {
	if t.users.Add(-1) == 0 && t.data != nil {
		_ = unix.Munmap(t.data)
	}
}

// entry is a directory's entry as it is stored in the table.
type entry [entryBytes]byte

// entry copies entry i, unchecked.
func (t *table) entry(i int) entry {
	return entry(t.data[t.entries.at+uint64(i)*entryBytes:])
}

// path returns an entry's path, unchecked; nil if it is out of bounds.
func (t *table) path(e *entry) []byte {
	at, n := word(e[:], 0), word(e[:], 1)
	if at > uint64(len(t.data)) || n > uint64(len(t.data))-at {
		return nil
	}
	return t.data[at:][:n]
}

// checked returns entry i if it is as it was written, or an error.
func (t *table) checked(i int) (entry, error) {
	e := t.entry(i)
	return e, t.check(t.entries, uint64(i)*entryBytes, uint64(i+1)*entryBytes)
}

// directory returns the segment of an entry that was checked.
func (t *table) directory(e *entry) segment {
	p := placed{at: word(e[:], 2), bytes: word(e[:], 3), sum: word(e[:], 8)}
	return segment{
		bytes: t.data[p.at:][:p.bytes:p.bytes], sums: t.sumsOf(p), files: int(word(e[:], 4)), sizeBytes: int64(word(e[:], 5)),
		version: xxh3.Uint128{Hi: word(e[:], 6), Lo: word(e[:], 7)},
	}
}

// listed returns directory number i and its path.
func (t *table) listed(i int) (path string, d segment, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	e, err := t.checked(i)
	if err != nil {
		return "", segment{}, err
	}
	path = string(t.path(&e))
	from := word(e[:], 0) - t.paths.at
	return path, t.directory(&e), t.check(t.paths, from, from+word(e[:], 1))
}

// find returns the directory of an object as it was listed.
func (t *table) find(o storage.Object) (d segment, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	i := sort.Search(t.count, func(i int) bool { e := t.entry(i); return string(t.path(&e)) >= o.Path })
	if i < t.count {
		e, err := t.checked(i)
		if err != nil {
			return segment{}, err
		}
		if string(t.path(&e)) == o.Path {
			if d = t.directory(&e); d.object(o.Path) != o {
				return segment{}, fmt.Errorf("the directory is not the one that was listed: %w", storage.ErrChanged)
			}
			return d, nil
		}
	}
	// It is not there, or the search has met damaged data.
	for _, p := range []placed{t.entries, t.paths} {
		if err := t.check(p, 0, p.bytes); err != nil {
			return segment{}, err
		}
	}
	return segment{}, fmt.Errorf("no such directory was listed: %w", storage.ErrChanged)
}

// Outline implements storage.Caps.
func (s *Storage) Outline(o storage.Object) (io.ReaderAt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := storage.ErrClosed
	t := s.table
	var d segment
	if t != nil {
		d, err = t.find(o)
	}
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	x := &outline{table: t, segment: d, opener: opener{storage: s}}
	x.opener.enter(o.Path)
	return x, nil
}

// outline is an object with zeros in place of files' contents.
type outline struct {
	table   *table
	segment segment
	opener  opener
	last    int // the file that was used last
}

// ReadAt implements io.ReaderAt. It must not be called concurrently.
func (x *outline) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(x.segment.sizeBytes-off, 0))
	clear(p[:n])
	if n > 0 {
		if err := x.headers(p[:n], off); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// headers writes the headers within a range into p.
func (x *outline) headers(p []byte, off int64) error {
	first, _, err := x.table.locate(&x.segment, off, 0, x.last)
	for i := first; err == nil && i < x.segment.files; i++ {
		o := &x.opener
		var f file
		if f, err = o.lookUp(x.table, &x.segment, i); err != nil {
			break
		}
		if i == first && (f.offset > off || f.end <= off) {
			err = x.table.damaged()
		}
		if err != nil || f.offset >= off+int64(len(p)) {
			break
		}
		x.last = i
		o.header = o.storage.framing.AppendHeader(o.header[:0], o.path[:len(o.path)-1], f.size)
		if skipped := off - f.offset; skipped >= int64(len(o.header)) {
			continue
		} else if skipped > 0 {
			copy(p, o.header[skipped:])
		} else {
			copy(p[f.offset-off:], o.header)
		}
	}
	return err
}
