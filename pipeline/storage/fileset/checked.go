package fileset

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A table on a disk is only as good as the disk: pages that were lost when the kernel wrote them
// come back as zeros, or can't be read at all (SIGBUS). So each block of what is stored there has a
// checksum in memory, and everything that a read relies on is compared with it. The data is copied
// before it is compared, because pages may disappear at any time.

// sumBytes is the size of a block: reading a file's words and its name takes one or two blocks
// each, at 0.1 µs per block. The sums take a 128th of the table's size.
const sumBytes = 1 << 10

// sumsOf returns the checksums of the blocks of b.
func sumsOf(b []byte) []uint64 {
	sums := make([]uint64, 0, (len(b)+sumBytes-1)/sumBytes)
	for len(b) > 0 {
		n := min(len(b), sumBytes)
		sums = append(sums, xxh3.Hash(b[:n]))
		b = b[n:]
	}
	return sums
}

var errListing = errors.New("the listing can't be read back as it was written")

// asPut reports whether the blocks of b that contain bytes from … to-1 are unchanged since they
// were stored.
func asPut(b []byte, sums []uint64, from, to uint64) bool {
	if sums == nil {
		return true // in memory
	}
	if from > to || to > uint64(len(b)) {
		return false
	}
	for at := from / sumBytes * sumBytes; at < to; at += sumBytes {
		if xxh3.Hash(b[at:min(at+sumBytes, uint64(len(b)))]) != sums[at/sumBytes] {
			return false
		}
	}
	return true
}

// sumsOf returns the checksums of a run in the table; nil if it is in memory.
func (t *table) sumsOf(p placed) []uint64 {
	if t.sums == nil {
		return nil
	}
	return t.sums[p.sum:][:(p.bytes+sumBytes-1)/sumBytes]
}

// check compares part of a run with its checksums.
func (t *table) check(p placed, from, to uint64) error {
	if !asPut(t.data[p.at:][:p.bytes], t.sumsOf(p), from, to) {
		return t.damaged()
	}
	return nil
}

func (t *table) damaged() error {
	return fmt.Errorf("%w to %s: mount again, with another --index-dir if that disk fails", errListing, t.dir)
}

// caught turns a fault in the table into an error of the function that defers it. It must be
// deferred itself.
func (t *table) caught(err *error) {
	p := recover()
	if p == nil {
		return
	}
	if !storage.IsFault(p) {
		panic(p) // a bug of ours
	}
	*err = t.damaged()
}

// lookUp returns a file of a directory, as it was listed, and sets path to its path.
func (o *opener) lookUp(t *table, g *segment, i int) (f file, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	f = g.file(i)
	names := g.names()
	if f.nameFrom > f.nameTo || f.nameTo > uint64(len(names)) {
		return f, t.damaged()
	}
	o.at(names[f.nameFrom:f.nameTo])
	words := uint64(g.files) * fileBytes
	if !asPut(g.bytes, g.sums, uint64(max(i-1, 0))*fileBytes, uint64(min(i+2, g.files))*fileBytes) ||
		!asPut(g.bytes, g.sums, words+f.nameFrom, words+f.nameTo) {
		return f, t.damaged()
	}
	return f, nil
}

// locate returns the numbers of the first file that overlaps a range of the object, and of the one
// after the last, unchecked. The files near and near+1 are tried before a search; near is -1 if
// there is no guess.
func (t *table) locate(g *segment, off, size int64, near int) (from, to int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer t.caught(&err)
	has := func(i int) bool { f := g.file(i); return f.offset <= off && off < f.end }
	switch {
	case near >= 0 && has(near):
		from = near
	case near >= 0 && near+1 < g.files && has(near+1):
		from = near + 1
	default:
		from = g.at(off)
	}
	if from < 0 {
		return 0, 0, t.damaged()
	}
	for to = from + 1; to < g.files && g.offset(to) < off+size; {
		to++
	}
	return from, to, nil
}
