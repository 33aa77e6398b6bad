package parquet

import (
	"bytes"
	"io"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// column makes vectors of a column out of the levels and values of its leaves.
type column struct {
	root   *node
	leaves []*leaf // root.from … root.to
	top    assembly
	rows   int // rows that are assembled and not consumed
	at     int // the first of them; unused if the column is a single leaf
	spare  assembly
}

// assembly is the vector of a node.
type assembly struct {
	v              *rows.Vector
	index, offsets []int32 // memory of v's
	children       []assembly
}

func newAssembly(n *node, v *rows.Vector) assembly {
	a := assembly{v: v}
	if len(n.children) > 0 {
		v.Children = make([]rows.Vector, len(n.children))
		a.children = make([]assembly, len(n.children))
		for i, c := range n.children {
			a.children[i] = newAssembly(c, &v.Children[i])
		}
	}
	return a
}

// levelRange is some rows of a leaf's page.
type levelRange struct{ from, to, slot, slots int }

// ready returns how many rows of a column are available, at least one; io.EOF after the last one.
func (c *column) ready() (int, error) {
	if len(c.root.children) == 0 {
		return c.leaves[0].ready()
	}
	if c.rows > 0 {
		return c.rows, nil
	}
	n, ended := 0, 0
	for i, l := range c.leaves {
		k, err := l.ready()
		switch {
		case err == io.EOF:
			ended++
		case err != nil:
			return 0, inLeaf(err, l)
		case i == 0 || k < n:
			n = k
		}
		if ended > 0 && ended <= i {
			return 0, inLeaf(errLeaves, l)
		}
	}
	if ended > 0 {
		return 0, io.EOF
	}
	if err := c.assemble(n); err != nil {
		return 0, err
	}
	c.rows, c.at = n, 0
	return n, nil
}

const errLeaves = reason("its fields have different numbers of rows or elements")

// slots returns where the next row is.
func (c *column) slots() rows.Slots {
	if len(c.root.children) == 0 {
		l := c.leaves[0]
		return rows.Slots{Vector: &l.vec, First: l.slotAt}
	}
	return rows.Slots{Vector: c.top.v, First: c.at}
}

// pass consumes n rows.
func (c *column) pass(n int) {
	for _, l := range c.leaves {
		l.pass(n)
	}
	c.rows -= n
	c.at += n
}

// assemble makes the vectors of the next n rows.
func (c *column) assemble(n int) error {
	for _, l := range c.leaves {
		to := l.end(n)
		l.taken = levelRange{l.at, to, l.slotAt, l.slots(l.at, to)}
	}
	return c.fill(c.root, &c.top)
}

func (c *column) fill(n *node, a *assembly) error {
	first := c.leaves[n.from-c.root.from]
	if len(n.children) == 0 {
		first.slice(a.v)
		return nil
	}
	isStruct := n.t.Kind == rows.Struct
	if !isStruct || n.def > n.slotDef {
		if err := first.structure(n, a); err != nil {
			return err
		}
		for _, l := range c.leaves[n.from-c.root.from+1 : n.to-c.root.from] {
			if err := l.structure(n, &c.spare); err != nil {
				return err
			}
			if !slices.Equal(a.index, c.spare.index) || !slices.Equal(a.offsets, c.spare.offsets) {
				return inLeaf(errLeaves, l)
			}
		}
		a.v.Index, a.v.Offsets = nil, a.offsets
		if slices.Contains(a.index, -1) {
			a.v.Index = a.index
		}
	}
	for i, child := range n.children {
		if err := c.fill(child, &a.children[i]); err != nil {
			return err
		}
	}
	return nil
}

// slice makes v the values of the rows that are taken.
func (l *leaf) slice(v *rows.Vector) {
	*v = l.vec
	r := l.taken
	switch {
	case v.Index != nil:
		v.Index = v.Index[r.slot:][:r.slots]
	case v.Width > 0:
		v.Bytes = v.Bytes[r.slot*v.Width:][:r.slots*v.Width]
	case len(v.Spans) > 0:
		v.Spans = v.Spans[r.slot:][:r.slots]
	}
}

// structure computes, from the levels of a leaf below n, which slots of n are null, and which
// elements its lists have.
func (l *leaf) structure(n *node, a *assembly) error {
	r := l.taken
	isList := n.t.Kind != rows.Struct
	var err error
	count := r.to - r.from
	a.index, a.offsets = a.index[:0], a.offsets[:0]
	if isList {
		if a.offsets, err = grow(l.mem, a.offsets, count+1, 4); err != nil {
			return err
		}
	}
	if isList && l.whole && l.maxRep == 1 { // lists of values, none of which is null or empty
		a.offsets = append(a.offsets, 0)
		for at := 0; at < count; {
			next := bytes.IndexByte(l.rep[r.from+at+1:r.to], 0)
			if next < 0 {
				at = count
			} else {
				at += 1 + next
			}
			a.offsets = append(a.offsets, int32(at))
		}
		return nil
	}
	if a.index, err = grow(l.mem, a.index, count, 4); err != nil {
		return err
	}
	var rep, def []uint8
	if l.maxRep > 0 {
		rep = l.rep[r.from:r.to]
	}
	if l.maxDef > 0 {
		def = l.def[r.from:r.to]
	}
	index, offsets := a.index, a.offsets
	elements, nulls := int32(0), false
	for p := range count {
		var k, d uint8
		if rep != nil {
			k = rep[p]
		}
		if def != nil {
			d = def[p]
		}
		if k <= n.depth && d >= n.slotDef {
			value := int32(len(index))
			if d < n.def {
				value, nulls = -1, true
			}
			index = append(index, value)
			if isList {
				offsets = append(offsets, elements)
			}
		}
		if isList && k <= n.depth+1 && d >= n.elemDef {
			elements++
		}
	}
	if isList {
		offsets = append(offsets, elements)
	}
	a.index, a.offsets = index, offsets
	if !nulls {
		a.index = a.index[:0]
	}
	return nil
}
