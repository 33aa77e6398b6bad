package folders

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const (
	fileWords  = 5
	fileBytes  = fileWords * 8
	entryWords = 8
	entryBytes = entryWords * 8
)

func word(b []byte, i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }

// segment is one directory: its files' words and their names. Nothing of it is
// changed once it was made.
type segment struct {
	bytes     []byte
	files     int
	sizeBytes int64 // of the object
	version   xxh3.Uint128
}

// names begins where the words end.
func (g *segment) names() []byte { return g.bytes[g.files*fileBytes:] }

// file is one file of a segment.
type file struct {
	offset int64 // in the object, of its header
	size   int64
	mtime  int64
	inode  uint64
	name   []byte
	end    int64 // in the object, of the zeros behind it
}

// file is the file with number i.
func (g *segment) file(i int) file {
	w := g.bytes[i*fileBytes:]
	f := file{offset: int64(word(w, 0)), size: int64(word(w, 1)), mtime: int64(word(w, 2)), inode: word(w, 3), end: g.sizeBytes}
	from := uint64(0)
	if i > 0 {
		from = word(g.bytes[(i-1)*fileBytes:], 4)
	}
	f.name = g.names()[from:word(w, 4)]
	if i+1 < g.files {
		f.end = int64(word(w[fileBytes:], 0))
	}
	return f
}

// offset is where file i begins in the object.
func (g *segment) offset(i int) int64 { return int64(word(g.bytes[i*fileBytes:], 0)) }

// at is the number of the file that has the byte at offset. The sizes of files are
// often alike, so it looks around where the file would then be first: a search of
// all takes memory that no cache has.
func (g *segment) at(offset int64) int {
	i := min(int(float64(offset)/float64(g.sizeBytes)*float64(g.files)), g.files-1)
	low, high := i, i+1 // low is at or before the file, high behind it
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

// object is the directory's.
func (g *segment) object(path string) storage.Object {
	v := storage.Version{ModTimeNanos: int64(g.version.Hi), Inode: g.version.Lo}
	return storage.Object{Path: path, SizeBytes: g.sizeBytes, Version: v}
}

// table is what one List has found. It is immutable, and unmapped when nobody
// uses it any more.
type table struct {
	users   atomic.Int64
	data    []byte
	entries int // where they begin
	count   int // of directories
}

// hold counts one more user; the caller holds one, or Storage.mu.
func (t *table) hold() { t.users.Add(1) }

func (t *table) drop() {
	if t.users.Add(-1) == 0 && t.data != nil {
		_ = unix.Munmap(t.data)
	}
}

func (t *table) entry(i int) []byte { return t.data[t.entries+i*entryBytes:][:entryBytes] }

func (t *table) path(i int) []byte {
	e := t.entry(i)
	return t.data[word(e, 0):][:word(e, 1)]
}

func (t *table) directory(i int) segment {
	e := t.entry(i)
	at, length := word(e, 2), word(e, 3)
	return segment{
		bytes: t.data[at : at+length : at+length], files: int(word(e, 4)), sizeBytes: int64(word(e, 5)),
		version: xxh3.Uint128{Hi: word(e, 6), Lo: word(e, 7)},
	}
}

func pad8(n uint64) uint64 { return (n + 7) &^ 7 }

// find gives the directory of an object as it was listed.
func (t *table) find(o storage.Object) (segment, error) {
	i := sort.Search(t.count, func(i int) bool { return string(t.path(i)) >= o.Path })
	if i == t.count || string(t.path(i)) != o.Path {
		return segment{}, fmt.Errorf("no such directory was listed: %w", storage.ErrChanged)
	}
	d := t.directory(i)
	if d.object(o.Path) != o {
		return segment{}, fmt.Errorf("the directory is not what was listed last: %w", storage.ErrChanged)
	}
	return d, nil
}

var errNotKept = errors.New("the listing can't be kept")

// scratch is the file that becomes a table. put may be called concurrently.
type scratch struct {
	file *os.File
	end  atomic.Uint64
}

// newScratch makes a file without a name in dir, in memory where that can't be.
func newScratch(dir string) (*scratch, error) {
	if dir != "" {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return &scratch{file: os.NewFile(uintptr(fd), dir+"/(listing)")}, nil
		}
	}
	fd, err := unix.MemfdCreate("lsiofs-listing", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("a listing in memory: %w", err)
	}
	return &scratch{file: os.NewFile(uintptr(fd), "listing in memory")}, nil
}

// put writes b at a multiple of 8 and says where.
func (s *scratch) put(b []byte) (uint64, error) {
	n := pad8(uint64(len(b)))
	at := s.end.Add(n) - n
	if _, err := s.file.WriteAt(b, int64(at)); err != nil {
		return 0, fmt.Errorf("%w: %w", errNotKept, err)
	}
	return at, nil
}

// found is a directory whose segment is in the scratch file.
type found struct {
	path         string
	at           uint64
	segment      segment // without bytes
	segmentBytes uint64
}

// seal writes what is found behind the segments, sorted by path, and maps it all.
func (s *scratch) seal(list []found) (*table, error) {
	slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.path, b.path) })
	var paths []byte
	for i := range list {
		paths = append(paths, list[i].path...)
	}
	pathsAt, err := s.put(paths)
	if err != nil {
		return nil, err
	}
	entries := make([]byte, 0, len(list)*entryBytes)
	for i := range list {
		d := &list[i]
		for _, v := range [entryWords]uint64{
			pathsAt, uint64(len(d.path)), d.at, d.segmentBytes,
			uint64(d.segment.files), uint64(d.segment.sizeBytes), d.segment.version.Hi, d.segment.version.Lo,
		} {
			entries = binary.NativeEndian.AppendUint64(entries, v)
		}
		pathsAt += uint64(len(d.path))
	}
	at, err := s.put(entries)
	if err != nil {
		return nil, err
	}
	t := &table{entries: int(at), count: len(list)}
	t.users.Store(1)
	if end := s.end.Load(); end > 0 {
		if err := s.file.Truncate(int64(end)); err != nil {
			return nil, fmt.Errorf("%w: %w", errNotKept, err)
		}
		if t.data, err = unix.Mmap(int(s.file.Fd()), 0, int(end), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return nil, fmt.Errorf("map the listing: %w", err)
		}
	}
	return t, nil
}
