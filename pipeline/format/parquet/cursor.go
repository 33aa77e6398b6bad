package parquet

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// Options of cursors.
type Options struct {
	// MaxBytes bounds the memory of a cursor: pages, compressed and decoded, of all its columns. A
	// page that takes more is a *rows.RefusedError. 0 means 1 GiB.
	MaxBytes int64
	// BlockBytes is how much of a column chunk is read at a time, if a page does not take more. 0
	// means 1 MiB, and less if there are many columns.
	BlockBytes int64
}

// Range is a range of a file.
type Range struct{ From, To int64 }

// Selection is columns of a file that are decoded.
type Selection struct {
	f      *File
	nodes  []*node
	leaves []bool // which leaves of the file are decoded
}

// Select returns a selection of columns, which rows.Resolve has found in f.Schema.
func (f *File) Select(columns []rows.Column) (*Selection, error) {
	s := &Selection{f: f, leaves: make([]bool, len(f.leaves))}
	for _, c := range columns {
		nodes := f.columns
		var n *node
		for _, i := range c.Path {
			if i < 0 || i >= len(nodes) {
				return nil, fmt.Errorf("parquet: column %s has the path %v, which is not in the schema", c.Name, c.Path)
			}
			n = nodes[i]
			nodes = n.children
		}
		if n == nil || n.depth > 0 || unsupported(n.t) {
			return nil, refused(c.Name, "values of the type %s are not supported", c.Type)
		}
		s.nodes = append(s.nodes, n)
		for i := n.from; i < n.to; i++ {
			s.leaves[i] = true
		}
	}
	return s, nil
}

func unsupported(t *rows.Type) bool {
	return t.Kind == rows.Unsupported || slices.ContainsFunc(t.Fields, func(f rows.Field) bool { return unsupported(f.Type) })
}

// Ranges returns the ranges of the file that a row group is decoded from, ascending; those that
// touch are one.
func (s *Selection) Ranges(group int) []Range {
	var all []Range
	s.f.chunks(group, func(leaf int, c chunk) {
		if c.to > c.from && s.leaves[leaf] {
			all = append(all, Range{c.from, c.to})
		}
	})
	slices.SortFunc(all, func(a, b Range) int { return int(min(max(a.From-b.From, -1), 1)) })
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && r.From <= merged[n-1].To {
			merged[n-1].To = max(merged[n-1].To, r.To)
		} else {
			merged = append(merged, r)
		}
	}
	return merged
}

// Stats counts what a cursor has read.
type Stats struct {
	PagesWithCRC, PagesWithoutCRC int64
}

// Cursor decodes the rows of one row group after another. It is not safe for concurrent use.
type Cursor struct {
	s       *Selection
	mem     memory
	decomp  decompressor
	stats   Stats
	columns []column
	leaves  []*leaf
	batch   rows.Batch
	group   int
	row     int64 // of the next row, in the row group
	left    int64
	err     error
}

var _ rows.Cursor = (*Cursor)(nil)

// minBlock is the least that is read of a column chunk at a time.
const minBlock = 4 << 10

// NewCursor returns a cursor that reads from raw, which may be the file or only the selection's
// ranges of it. It has no rows before Open.
func (s *Selection) NewCursor(raw io.ReaderAt, o Options) *Cursor {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	leaves := 0
	for _, n := range s.nodes {
		leaves += n.to - n.from
	}
	if o.BlockBytes <= 0 {
		o.BlockBytes = min(1<<20, max(minBlock, 16<<20/int64(max(leaves, 1))))
	}
	c := &Cursor{s: s, mem: memory{most: o.MaxBytes}, group: -1, err: io.EOF}
	for _, n := range s.nodes {
		col := column{root: n, top: newAssembly(n, new(rows.Vector))}
		for i := n.from; i < n.to; i++ {
			l := &leaf{leafInfo: &s.f.leaves[i], mem: &c.mem, decomp: &c.decomp, stats: &c.stats, raw: raw, block: o.BlockBytes}
			col.leaves = append(col.leaves, l)
			c.leaves = append(c.leaves, l)
		}
		c.columns = append(c.columns, col)
	}
	c.batch.Columns = make([]rows.Slots, len(c.columns))
	return c
}

// Open moves to a row of a row group: the first for the zero Point. Damage of another row group, or
// an error of it, has no effect on this one.
func (c *Cursor) Open(group int, p Point) error {
	g := c.s.f.groups[group]
	c.group, c.row, c.left, c.err = group, p.Row, g.rows-p.Row, nil
	if p.Row < 0 || c.left < 0 || p.Leaves != nil && len(p.Leaves) != len(c.leaves) {
		return c.fail(errPoint, nil)
	}
	chunks := make(map[int]chunk, len(c.leaves))
	c.s.f.chunks(group, func(i int, k chunk) {
		if c.s.leaves[i] {
			chunks[i] = k
		}
	})
	at := 0
	for i := range c.columns {
		col := &c.columns[i]
		col.rows, col.at = 0, 0
		for j, l := range col.leaves {
			k := chunks[col.root.from+j]
			start := LeafPoint{Pass: p.Row}
			if p.Leaves != nil {
				start = p.Leaves[at]
			}
			at++
			if err := l.begin(k, g.rows, start); err != nil {
				return c.fail(err, l)
			}
		}
	}
	return nil
}

// begin opens a column chunk of a row group.
func (l *leaf) begin(k chunk, groupRows int64, p LeafPoint) error {
	switch k.codec {
	case uncompressed, codecSnappy, codecGzip, codecBrotli, codecLZ4, codecZstd, codecLZ4Raw:
	default:
		if k.values > 0 {
			return refused(l.name, "it is compressed with the codec %s (%d), which is not supported", k.codec, int32(k.codec))
		}
	}
	if l.maxRep == 0 && k.values != groupRows || k.values < groupRows {
		return damaged("the column chunk has %d values, and its row group %d rows", k.values, groupRows)
	}
	return l.open(k, p)
}

// leafError is an error of a leaf that is not the first of its column.
type leafError struct {
	error
	l *leaf
}

func inLeaf(err error, l *leaf) error { return &leafError{err, l} }

// fail makes an error sticky.
func (c *Cursor) fail(err error, l *leaf) error {
	if e, ok := errors.AsType[*leafError](err); ok {
		err, l = e.error, e.l
	}
	name, at := "", int64(0)
	if l != nil {
		name, at = l.name, l.tried
		if at == 0 {
			at = l.c.from
		}
	}
	c.err = placed(err, c.group, name, at)
	if r, ok := errors.AsType[*rows.RefusedError](c.err); ok && r.Column == "" {
		c.err = &rows.RefusedError{Column: name, Reason: r.Reason}
	}
	return c.err
}

// Next implements rows.Cursor. At the end of a row group it returns io.EOF, after checking that all
// columns have as many rows as the footer has.
func (c *Cursor) Next() (*rows.Batch, error) {
	if c.err != nil {
		return nil, c.err
	}
	if c.left == 0 {
		for i := range c.columns {
			if _, err := c.columns[i].ready(); err != io.EOF {
				if err == nil {
					err = reason("it has more rows than the footer has for the row group")
				}
				return nil, c.fail(err, c.columns[i].leaves[0])
			}
		}
		c.err = io.EOF
		return nil, c.err
	}
	n := c.left
	for i := range c.columns {
		k, err := c.columns[i].ready()
		if err == io.EOF {
			err = reason("it has fewer rows than the footer has for the row group")
		}
		if err != nil {
			return nil, c.fail(err, c.columns[i].leaves[0])
		}
		n = min(n, int64(k))
	}
	c.batch.Rows = int(n)
	for i := range c.columns {
		c.batch.Columns[i] = c.columns[i].slots()
		c.columns[i].pass(int(n))
	}
	c.row += n
	c.left -= n
	return &c.batch, nil
}

// Point returns the point of the next row. It is valid after Open, and after Next without an error.
func (c *Cursor) Point() Point {
	p := Point{Row: c.row, Leaves: make([]LeafPoint, len(c.leaves))}
	for i, l := range c.leaves {
		p.Leaves[i] = l.point()
	}
	return p
}

// Stats returns what was read so far.
func (c *Cursor) Stats() Stats { return c.stats }

// MemoryBytes returns how much memory the cursor's buffers have.
func (c *Cursor) MemoryBytes() int64 { return c.mem.used }
