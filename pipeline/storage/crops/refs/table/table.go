// Package table stores where the objects of a Zarr hierarchy are, if one file describes the
// hierarchy. Each object is a range of a file, or has its bytes in the table.
//
//	key ──► Place: file and range │ all of a file │ bytes │ a member of a zip file
//
// A Builder takes keys in any order and makes a Table, which is sorted, immutable and safe for
// concurrent use. A hierarchy may have millions of keys, so each takes 40 bytes plus its own
// length. The bound for all of them is set when the Builder is made.
package table

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"
	"unsafe"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Limits of a hierarchy. With keys of maximal length a table takes several gigabytes; with usual
// ones of 20 bytes, 400 MB.
const (
	MaxKeys     = 1 << 23
	MaxKeyBytes = 1 << 10
	// MaxInlineBytes bounds the inline bytes of all keys, and MaxFiles the named files.
	MaxInlineBytes = 256 << 20
	MaxFiles       = 1 << 20
	// MaxNameBytes bounds the names of all files.
	MaxNameBytes = 256 << 20
)

// Kind is how an object is stored.
type Kind uint8

// The kinds.
const (
	Range      Kind = iota // Size bytes at Offset of a file
	Whole                  // all of a file
	Inline                 // in Place.Bytes
	Member                 // of a zip file: its local header is at Offset, followed by Size bytes
	Compressed             // member of a zip file, compressed by the method Offset
)

// Place is where an object is.
type Place struct {
	Kind Kind
	// File is an index for Table.File.
	File         int
	Offset, Size int64
	// CRC32 is the checksum of a Member's bytes, from the zip directory.
	CRC32 uint32
	// Bytes must not be modified.
	Bytes []byte
}

// entry is a key and its place. For Inline, offset is the number of its bytes in Table.inline. For
// Member, file is the CRC-32: all members are in the first file.
type entry struct {
	key          int64 // its number in Table.keys; ascending in the order of Add
	offset, size int64
	file         int32
	keyBytes     uint16
	kind         Kind
}

// Table holds the places of all objects.
type Table struct {
	keys   texts
	inline texts
	list   entries // sorted by key
	files  []string
	names  int // total bytes of files
}

// Builder makes a table.
type Builder struct {
	t         Table
	numbers   map[string]int32 // of files
	mostBytes int64
	last      bool
}

// NewBuilder returns a builder of a table that takes at most mostBytes. If a key is added twice,
// the last place counts if last is true; otherwise it is an error.
func NewBuilder(last bool, mostBytes int64) *Builder {
	return &Builder{numbers: map[string]int32{}, mostBytes: mostBytes, last: last}
}

// Add adds an object. file is the name of the file that holds it; it is ignored for Inline.
func (b *Builder) Add(key []byte, p Place, file string) error {
	if len(key) > MaxKeyBytes {
		return fmt.Errorf("a key has %d bytes: at most %d are read", len(key), MaxKeyBytes)
	}
	if err := zarr.CheckPath(string(key)); err != nil {
		return err
	}
	if b.t.list.n == MaxKeys {
		return fmt.Errorf("there are more than %d keys: write the arrays in larger chunks, or the references in several files", MaxKeys)
	}
	if b.t.HeldBytes()+int64(len(key)+len(p.Bytes)+len(file)) > b.mostBytes {
		return b.tooLarge()
	}
	e := entry{keyBytes: uint16(len(key)), kind: p.Kind, offset: p.Offset, size: p.Size, file: -1}
	if p.Kind == Inline {
		if int64(len(p.Bytes)) > MaxInlineBytes-b.t.inline.usedBytes {
			return fmt.Errorf("the contents of keys have more than %d bytes together: refer to files instead", MaxInlineBytes)
		}
		e.offset, e.size = b.t.inline.add(p.Bytes), int64(len(p.Bytes))
	} else {
		if p.Offset < 0 || p.Size < 0 || p.Offset > math.MaxInt64-p.Size {
			return fmt.Errorf("key %q: there is no range of %d bytes at %d", key, p.Size, p.Offset)
		}
		n, known := b.numbers[file]
		if !known {
			if len(b.t.files) == MaxFiles {
				return fmt.Errorf("there are more than %d files: write the references in several files", MaxFiles)
			}
			if b.t.names += len(file); b.t.names > MaxNameBytes {
				return errNames
			}
			n = int32(len(b.t.files))
			b.t.files = append(b.t.files, strings.Clone(file))
			b.numbers[b.t.files[n]] = n
		}
		if e.file = n; p.Kind == Member {
			if n != 0 {
				return fmt.Errorf("key %q: members of a zip file must be in one file", key)
			}
			e.file = int32(p.CRC32)
		}
	}
	e.key = b.t.keys.add(key)
	b.t.list.add(e)
	return nil
}

// ErrMemory means that a table would take too much memory.
var ErrMemory = errors.New("half of --memory has no more room")

func (b *Builder) tooLarge() error {
	return fmt.Errorf("its first %d keys take %s of memory: %w: raise --memory, or write the arrays in larger chunks", b.t.list.n, humanize.IBytes(uint64(b.t.HeldBytes())), ErrMemory)
}

// Table returns the table of what was added. The builder must not be used any more.
func (b *Builder) Table() (*Table, error) {
	t := &b.t
	sort.Sort(byKey{t})
	n := 0
	for i := range t.list.n {
		e := t.list.at(i)
		if n > 0 && bytes.Equal(t.key(e), t.key(t.list.at(n-1))) {
			if !b.last {
				return nil, fmt.Errorf("the key %q occurs twice", t.key(e))
			}
			n--
		}
		*t.list.at(n) = *e
		n++
	}
	t.list.cut(n)
	above := "" // the directory of the key before
	for i := range n {
		key := t.Key(i)
		dir := key[:max(strings.LastIndexByte(key, '/'), 0)]
		if dir == above {
			continue
		}
		above = dir
		for dir != "" {
			if _, found := t.Find(dir); found {
				return nil, fmt.Errorf("the key %q is both an object and a directory, with %q", dir, key)
			}
			dir = dir[:max(strings.LastIndexByte(dir, '/'), 0)]
		}
	}
	return t, nil
}

// byKey sorts a table by key, and equal keys in the order of Add.
type byKey struct{ *Table }

func (t byKey) Swap(i, j int) {
	x, y := t.list.at(i), t.list.at(j)
	*x, *y = *y, *x
}

func (t byKey) Less(i, j int) bool {
	x, y := t.list.at(i), t.list.at(j)
	return cmp.Or(bytes.Compare(t.key(x), t.key(y)), cmp.Compare(x.key, y.key)) < 0
}

func (t *Table) key(e *entry) []byte { return t.keys.at(e.key, int64(e.keyBytes)) }

// HeldBytes returns about what the table takes in memory, including what its users store for each
// key and file.
func (t *Table) HeldBytes() int64 {
	return t.keys.heldBytes + t.inline.heldBytes + t.list.heldBytes() + int64(t.list.n*keyBytes+2*t.names+len(t.files)*fileBytes)
}

// What package refs stores for each key and file. It also stores the file's name a second time.
const (
	keyBytes  = 8
	fileBytes = 300
)

// Len returns the number of keys.
func (t *Table) Len() int { return t.list.n }

// Key returns key i; keys are sorted.
func (t *Table) Key(i int) string { return string(t.key(t.list.at(i))) }

// Place returns the place of key i.
func (t *Table) Place(i int) Place {
	e := t.list.at(i)
	p := Place{Kind: e.kind, File: int(e.file), Offset: e.offset, Size: e.size}
	switch e.kind {
	case Member:
		p.File, p.CRC32 = 0, uint32(e.file)
	case Inline:
		p.Offset, p.Bytes = 0, t.inline.at(e.offset, e.size)
	}
	return p
}

// Search returns the index of the first key that is not less than key.
func (t *Table) Search(key string) int {
	return sort.Search(t.list.n, func(i int) bool { return string(t.key(t.list.at(i))) >= key })
}

// Find returns the index of a key.
func (t *Table) Find(key string) (i int, found bool) {
	i = t.Search(key)
	return i, i < t.list.n && string(t.key(t.list.at(i))) == key
}

// Files returns the number of files, and File the name of one.
func (t *Table) Files() int        { return len(t.files) }
func (t *Table) File(i int) string { return t.files[i] }

// maxProblems is how many names an error mentions.
const maxProblems = 5

var errNames = fmt.Errorf("the names of files have more than %d bytes together: write the references in several files", MaxNameBytes)

// Rename replaces the name of each file by the result of to. Files whose names become equal stay
// separate.
func (b *Builder) Rename(to func(string) (string, error)) error {
	var problems []error
	b.t.names = 0
	for i, f := range b.t.files {
		name, err := to(f)
		if err != nil {
			if problems = append(problems, err); len(problems) == maxProblems {
				break
			}
		}
		if b.t.names += len(name); b.t.names > MaxNameBytes {
			return errNames
		}
		if b.t.HeldBytes() > b.mostBytes {
			return b.tooLarge()
		}
		b.t.files[i] = name
	}
	return errors.Join(problems...)
}

// Lists consist of slabs of slabBytes: growing a contiguous list would temporarily take its memory
// twice.
const slabBytes = 1 << 20

// texts stores texts by number.
type texts struct {
	slabs                [][]byte
	usedBytes, heldBytes int64
}

// add copies a text, and returns its number. Numbers never decrease.
func (t *texts) add(b []byte) int64 {
	n := len(t.slabs) - 1
	if n < 0 || len(b) > cap(t.slabs[n])-len(t.slabs[n]) {
		size := min(max(t.heldBytes, 4<<10), slabBytes)
		t.slabs = append(t.slabs, make([]byte, 0, max(size, int64(len(b)))))
		n++
		t.heldBytes += int64(cap(t.slabs[n]))
	}
	at := len(t.slabs[n])
	t.slabs[n] = append(t.slabs[n], b...)
	t.usedBytes += int64(len(b))
	return int64(n)<<32 | int64(at)
}

// at returns the text with a number and size. It must not be modified.
func (t *texts) at(number, size int64) []byte {
	at := number & (1<<32 - 1)
	return t.slabs[number>>32][at : at+size : at+size]
}

// entries is a list of entries.
type entries struct {
	slabs [][]entry
	n     int
}

const (
	entryBytes  = int(unsafe.Sizeof(entry{}))
	slabEntries = slabBytes / entryBytes
)

func (l *entries) at(i int) *entry { return &l.slabs[i/slabEntries][i%slabEntries] }

func (l *entries) add(e entry) {
	last := l.n / slabEntries
	if last == len(l.slabs) {
		size := slabEntries
		if last == 0 {
			size = 16 // it grows: there may be many small tables
		}
		l.slabs = append(l.slabs, make([]entry, 0, size))
	}
	l.slabs[last] = append(l.slabs[last], e)
	l.n++
}

// cut keeps the first n.
func (l *entries) cut(n int) {
	clear(l.slabs[(n+slabEntries-1)/slabEntries:])
	l.slabs = l.slabs[:(n+slabEntries-1)/slabEntries]
	l.n = n
}

func (l *entries) heldBytes() int64 { return int64(l.n * entryBytes) }
