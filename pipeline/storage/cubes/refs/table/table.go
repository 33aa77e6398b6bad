// Package table says where the objects of a hierarchy lie that is described by one file: each is a
// range of a file, or bytes of its own.
//
//	key ──► Place: file and range │ all of a file │ bytes │ a member of a zip file
//
// A Builder takes keys in any order and makes a Table, which is sorted, does not change and is safe
// for concurrent use. A key takes 32 bytes and its own length, as a hierarchy may have millions.
package table

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"unsafe"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Limits of a hierarchy. With the greatest keys a table takes some gigabytes; with those of usual
// ones, of 20 bytes, 400 MB.
const (
	MaxKeys     = 1 << 23
	MaxKeyBytes = 1 << 10
	// MaxInlineBytes bounds the bytes of all keys that have bytes of their own, and MaxFiles
	// the files that are named.
	MaxInlineBytes = 256 << 20
	MaxFiles       = 1 << 20
	// MaxNameBytes bounds the names of all files.
	MaxNameBytes = 256 << 20
)

// Kind is where an object lies.
type Kind uint8

// The kinds.
const (
	Range      Kind = iota // Size bytes at Offset of a file
	Whole                  // all of a file
	Inline                 // Bytes
	Member                 // of a zip file: its local header lies at Offset, and Size bytes behind it
	Compressed             // member of a zip file, compressed by the method Offset
)

// Place is where an object lies.
type Place struct {
	Kind Kind
	// File is a number of Table.File.
	File         int
	Offset, Size int64
	// CRC32 is what a Member's bytes have, by its directory.
	CRC32 uint32
	// Bytes must not be changed.
	Bytes []byte
}

// entry is a key and its place. Of Inline, offset is where its bytes lie in Table.inline. Of Member,
// file is the CRC-32: all lie in the first file.
type entry struct {
	key          int64 // where it begins in Table.keys
	offset, size int64
	file         int32
	keyBytes     uint16
	kind         Kind
}

// Table has the places of all objects.
type Table struct {
	keys   []byte
	inline []byte
	list   []entry // by key
	files  []string
}

// Builder makes a table.
type Builder struct {
	t       Table
	numbers map[string]int32 // of files
	names   int              // bytes of them
	last    bool
}

// NewBuilder makes a builder. Of a key that is added twice the last place counts if last is true;
// else it is an error.
func NewBuilder(last bool) *Builder { return &Builder{numbers: map[string]int32{}, last: last} }

// Add adds an object. file is the name of what it is a range of; Kind Inline has none.
func (b *Builder) Add(key []byte, p Place, file string) error {
	if len(key) > MaxKeyBytes {
		return fmt.Errorf("a key has %d bytes: at most %d are read", len(key), MaxKeyBytes)
	}
	if err := zarr.CheckPath(string(key)); err != nil {
		return err
	}
	if len(b.t.list) == MaxKeys {
		return fmt.Errorf("there are more than %d keys: write the arrays in larger chunks, or the references in several files", MaxKeys)
	}
	e := entry{key: int64(len(b.t.keys)), keyBytes: uint16(len(key)), kind: p.Kind, offset: p.Offset, size: p.Size, file: -1}
	if p.Kind == Inline {
		if len(p.Bytes) > MaxInlineBytes-len(b.t.inline) {
			return fmt.Errorf("the contents of keys have more than %d bytes together: refer to files instead", MaxInlineBytes)
		}
		e.offset, e.size = int64(len(b.t.inline)), int64(len(p.Bytes))
		b.t.inline = append(b.t.inline, p.Bytes...)
	} else {
		if p.Offset < 0 || p.Size < 0 || p.Offset > math.MaxInt64-p.Size {
			return fmt.Errorf("key %q: there is no range of %d bytes at %d", key, p.Size, p.Offset)
		}
		n, known := b.numbers[file]
		if !known {
			if len(b.t.files) == MaxFiles {
				return fmt.Errorf("there are more than %d files: write the references in several files", MaxFiles)
			}
			if b.names += len(file); b.names > MaxNameBytes {
				return errNames
			}
			n = int32(len(b.t.files))
			b.t.files = append(b.t.files, strings.Clone(file))
			b.numbers[b.t.files[n]] = n
		}
		if e.file = n; p.Kind == Member {
			if n != 0 {
				return fmt.Errorf("key %q: members of zip files lie in one file", key)
			}
			e.file = int32(p.CRC32)
		}
	}
	b.t.keys = append(b.t.keys, key...)
	b.t.list = append(b.t.list, e)
	return nil
}

// Table is what was added. The builder can't be used any more.
func (b *Builder) Table() (*Table, error) {
	t := &b.t
	slices.SortStableFunc(t.list, func(x, y entry) int { return bytes.Compare(t.key(&x), t.key(&y)) })
	n := 0
	for i := range t.list {
		if i > 0 && bytes.Equal(t.key(&t.list[i]), t.key(&t.list[n-1])) {
			if !b.last {
				return nil, fmt.Errorf("the key %q is there twice", t.key(&t.list[i]))
			}
			n--
		}
		t.list[n] = t.list[i]
		n++
	}
	t.list = slices.Clip(t.list[:n])
	for i := range t.list {
		key := t.Key(i)
		if at := t.Search(key + "/"); at < len(t.list) && strings.HasPrefix(t.Key(at), key+"/") {
			return nil, fmt.Errorf("the key %q is both an object and a directory, with %q", key, t.Key(at))
		}
	}
	return t, nil
}

func (t *Table) key(e *entry) []byte { return t.keys[e.key : e.key+int64(e.keyBytes)] }

// HeldBytes is what the table has in memory, as good as.
func (t *Table) HeldBytes() int64 {
	n := int64(cap(t.keys)) + int64(cap(t.inline)) + int64(len(t.list))*int64(unsafe.Sizeof(entry{}))
	for _, f := range t.files {
		n += int64(len(f) + fileBytes)
	}
	return n
}

// fileBytes is what a file takes beside its name, here and in package refs.
const fileBytes = 200

// Len is the number of keys.
func (t *Table) Len() int { return len(t.list) }

// Key is key i; they are sorted.
func (t *Table) Key(i int) string { return string(t.key(&t.list[i])) }

// Place is that of key i.
func (t *Table) Place(i int) Place {
	e := &t.list[i]
	p := Place{Kind: e.kind, File: int(e.file), Offset: e.offset, Size: e.size}
	switch e.kind {
	case Member:
		p.File, p.CRC32 = 0, uint32(e.file)
	case Inline:
		p.Offset, p.Bytes = 0, t.inline[e.offset:e.offset+e.size:e.offset+e.size]
	}
	return p
}

// Search is the first key that is not less than key.
func (t *Table) Search(key string) int {
	return sort.Search(len(t.list), func(i int) bool { return string(t.key(&t.list[i])) >= key })
}

// Find is the number of a key.
func (t *Table) Find(key string) (i int, found bool) {
	return sort.Find(len(t.list), func(i int) int { return cmp.Compare(key, string(t.key(&t.list[i]))) })
}

// Files is the number of files, and File the name of one.
func (t *Table) Files() int        { return len(t.files) }
func (t *Table) File(i int) string { return t.files[i] }

// maxProblems is how many names an error tells about.
const maxProblems = 5

var errNames = fmt.Errorf("the names of files have more than %d bytes together: write the references in several files", MaxNameBytes)

// Rename gives each file the name that to makes of its own. Names that become equal stay two files.
func (b *Builder) Rename(to func(string) (string, error)) error {
	var problems []error
	b.names = 0
	for i, f := range b.t.files {
		name, err := to(f)
		if err != nil {
			if problems = append(problems, err); len(problems) == maxProblems {
				break
			}
		}
		if b.names += len(name); b.names > MaxNameBytes {
			return errNames
		}
		b.t.files[i] = name
	}
	return errors.Join(problems...)
}
