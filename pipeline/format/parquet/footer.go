package parquet

import (
	"encoding/binary"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// MaxFooterBytes bounds the footer, which is held in memory as long as its File.
const MaxFooterBytes = 64 << 20

// tailBytes is what is read first: the footers of most files are within it.
const tailBytes = 64 << 10

const magic = "PAR1"

// File is what the footer of a shard describes. It is immutable and safe for concurrent use.
type File struct {
	Schema rows.Schema
	// Features is the value of the footer's key "huggingface", "" if it has none.
	Features  string
	sizeBytes int64
	footer    []byte
	footerAt  int64
	columns   []*node
	leaves    []leafInfo
	groups    []group
}

// group is a row group: where its description is in the footer.
type group struct {
	rows    int64
	first   int64 // rows of the groups before it
	at      int   // of the list of column chunks, after its head
	rawFrom int64 // the range of the file that its column chunks are in
	rawTo   int64
}

// chunk is a column chunk.
type chunk struct {
	from, to int64 // its pages in the file
	values   int64 // with nulls and empty lists
	codec    codec
}

// Open reads and checks the footer of a file of sizeBytes. Damage is a *DamageError with the group
// -1, and what is never read a *rows.RefusedError; other errors are those of raw.
func Open(raw io.ReaderAt, sizeBytes int64) (*File, error) {
	f := &File{sizeBytes: sizeBytes}
	if err := f.open(raw); err != nil {
		return nil, placed(err, -1, "", f.footerAt)
	}
	return f, nil
}

func (f *File) open(raw io.ReaderAt) error {
	if f.sizeBytes < 12 {
		return damaged("the file has %d bytes, too few for Parquet", f.sizeBytes)
	}
	tail := make([]byte, min(f.sizeBytes, tailBytes))
	f.footerAt = f.sizeBytes - 8
	if err := readAt(raw, tail, f.sizeBytes-int64(len(tail))); err != nil {
		return err
	}
	switch end := string(tail[len(tail)-4:]); end {
	case magic:
	case "PARE":
		return refused("", "the file is encrypted")
	default:
		return damaged("the file ends in %q, not in %q: it may be cut off", end, magic)
	}
	size := int64(binary.LittleEndian.Uint32(tail[len(tail)-8:]))
	switch {
	case size > f.sizeBytes-12:
		return damaged("the footer has %d bytes, and the file %d", size, f.sizeBytes)
	case size > MaxFooterBytes:
		return refused("", "the footer has %d bytes; at most %d are read", size, int64(MaxFooterBytes))
	}
	f.footerAt = f.sizeBytes - 8 - size
	if size+8 <= int64(len(tail)) {
		f.footer = append([]byte(nil), tail[int64(len(tail))-8-size:len(tail)-8]...)
	} else {
		f.footer = make([]byte, size)
		if err := readAt(raw, f.footer, f.footerAt); err != nil {
			return err
		}
	}
	return f.parse()
}

// readAt reads len(p) bytes. Fewer are an error of the storage.
func readAt(raw io.ReaderAt, p []byte, at int64) error {
	n, err := raw.ReadAt(p, at)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (f *File) parse() error {
	t := &thrift{b: f.footer}
	var elements []element
	var encrypted bool
	groupsAt, groups := 0, 0
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 2:
			n := t.list(kind, thriftStruct)
			if n > maxElements {
				t.err = refused("", "the schema has more than %d columns and fields", maxElements)
			}
			for range n {
				if t.err != nil {
					break
				}
				e := parseElement(t)
				e.convert()
				elements = append(elements, e)
			}
		case 4:
			at := t.pos
			groups = t.list(kind, thriftStruct)
			groupsAt = t.pos
			if t.err == nil {
				t.pos = at
			}
			return false
		case 5:
			for range t.list(kind, thriftStruct) {
				f.parseKeyValue(t)
				if t.err != nil {
					break
				}
			}
		case 8:
			encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	if t.err != nil {
		return t.err
	}
	if encrypted {
		return refused("", "it has encrypted columns")
	}
	var names []string
	var err error
	if f.columns, names, f.leaves, err = buildSchema(elements); err != nil {
		return err
	}
	for i, n := range f.columns {
		f.Schema = append(f.Schema, rows.Field{Name: names[i], Type: n.t})
	}
	if err := f.Schema.Check(); err != nil {
		return err
	}
	t.pos = groupsAt
	for range groups {
		if err := f.parseGroup(t); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) parseKeyValue(t *thrift) {
	var key, value []byte
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			key = t.binary(kind)
		case 2:
			value = t.binary(kind)
		default:
			return false
		}
		return true
	})
	if string(key) == "huggingface" {
		f.Features = string(value)
	}
}

// parseGroup checks the next row group, and notes where it is.
func (f *File) parseGroup(t *thrift) error {
	g := group{rows: -1, at: -1, rawFrom: f.footerAt}
	chunks := 0
	var err error
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			chunks = t.list(kind, thriftStruct)
			g.at = t.pos
			if chunks != len(f.leaves) {
				t.fail("row group %d has %d column chunks, and the schema %d", len(f.groups), chunks, len(f.leaves))
			}
			for i := range chunks {
				if t.err != nil {
					break
				}
				var c chunk
				if c, err = f.parseChunk(t, i); err != nil {
					t.err = err
				} else if c.to > c.from {
					g.rawFrom, g.rawTo = min(g.rawFrom, c.from), max(g.rawTo, c.to)
				}
			}
		case 3:
			g.rows = t.i64(kind)
		default:
			return false
		}
		return true
	})
	switch {
	case t.err != nil:
		return t.err
	case g.at < 0 || g.rows < 0:
		return damaged("row group %d has no columns or no rows", len(f.groups))
	}
	if n := len(f.groups); n > 0 {
		g.first = f.groups[n-1].first + f.groups[n-1].rows
	}
	if g.first > maxRows-g.rows {
		return damaged("the row groups have more than %d rows", int64(maxRows))
	}
	f.groups = append(f.groups, g)
	return nil
}

// maxRows bounds the rows of a shard, so that they can be added.
const maxRows = 1 << 56

// parseChunk reads the column chunk of a leaf.
func (f *File) parseChunk(t *thrift, leaf int) (chunk, error) {
	var c chunk
	var dictionary, data, size int64
	meta, elsewhere, encrypted := false, false, false
	phys := physical(-1)
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			elsewhere = len(t.binary(kind)) > 0
		case 3:
			if !t.is(kind, thriftStruct) {
				return true
			}
			meta = true
			t.fields(func(id int16, kind byte) bool {
				switch id {
				case 1:
					phys = physical(t.i32(kind))
				case 4:
					c.codec = codec(t.i32(kind))
				case 5:
					c.values = t.i64(kind)
				case 7:
					size = t.i64(kind)
				case 9:
					data = t.i64(kind)
				case 11:
					dictionary = t.i64(kind)
				default:
					return false
				}
				return true
			})
		case 8, 9:
			encrypted = true
			return false
		default:
			return false
		}
		return true
	})
	l := &f.leaves[leaf]
	bad := func(format string, args ...any) error {
		return &DamageError{Group: -1, Column: l.name, RawOffset: f.footerAt, Reason: string(damaged(format, args...).(reason))}
	}
	switch {
	case t.err != nil:
		return c, t.err
	case encrypted:
		return c, refused(l.name, "it is encrypted")
	case elsewhere:
		return c, refused(l.name, "its values are in another file")
	case !meta:
		return c, bad("a column chunk has no description")
	case phys != l.phys:
		return c, bad("a column chunk has the type %d, and the schema %s", phys, physicalNames[l.phys])
	case c.values < 0 || size < 0:
		return c, bad("a column chunk has %d values in %d bytes", c.values, size)
	case c.values == 0:
		return c, nil
	}
	c.from = data
	if dictionary >= int64(len(magic)) && dictionary < data {
		c.from = dictionary
	}
	if c.from < int64(len(magic)) || c.from > f.footerAt || size > f.footerAt-c.from {
		return c, bad("a column chunk has %d bytes at byte %d, and the file's data end at byte %d", size, c.from, f.footerAt)
	}
	c.to = c.from + size
	return c, nil
}

// Groups returns the number of row groups.
func (f *File) Groups() int { return len(f.groups) }

// Rows returns the number of rows of the shard.
func (f *File) Rows() int64 {
	if n := len(f.groups); n > 0 {
		return f.groups[n-1].first + f.groups[n-1].rows
	}
	return 0
}

// GroupRows returns the ordinal in the shard of a row group's first row, and how many rows it has.
func (f *File) GroupRows(group int) (first, rows int64) {
	return f.groups[group].first, f.groups[group].rows
}

// GroupOffset returns the offset in the file of the first of a row group's pages, 0 if it has none.
func (f *File) GroupOffset(group int) int64 {
	first := int64(-1)
	f.chunks(group, func(_ int, c chunk) {
		if c.to > c.from && (first < 0 || c.from < first) {
			first = c.from
		}
	})
	return max(first, 0)
}

// MemoryBytes returns approximately how much memory the file's description takes.
func (f *File) MemoryBytes() int64 {
	return int64(len(f.footer)) + 40*int64(len(f.groups)) + 300*int64(len(f.leaves))
}

// chunks calls each for all column chunks of a row group, in order. The footer has been checked.
func (f *File) chunks(group int, each func(leaf int, c chunk)) {
	t := &thrift{b: f.footer, pos: f.groups[group].at}
	for i := range f.leaves {
		c, err := f.parseChunk(t, i)
		if err != nil {
			panic("parquet: a footer that was checked has changed: " + err.Error())
		}
		each(i, c)
	}
}
