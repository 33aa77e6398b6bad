package folders

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A table on a disk is only as good as the disk: pages that were lost when the kernel
// wrote them come back as zeros, others not at all (SIGBUS). So each block of what is
// put there has a checksum, in memory, and whatever a read goes by is compared with
// it. It is copied first and compared then, as pages may go at any time.

// sumBytes is the size of a block: a file's words and name are looked at by one or two
// of each, 0.1 µs a block. The sums take a 128th of the table's size.
const sumBytes = 1 << 10

// sumsOf gives the checksums of the blocks of b.
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

// asPut says whether the blocks of b that hold bytes from … to-1 are as they were put.
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

// sumsOf are those of a run in the table; nil in memory.
func (t *table) sumsOf(p placed) []uint64 {
	if t.sums == nil {
		return nil
	}
	return t.sums[p.sum:][:(p.bytes+sumBytes-1)/sumBytes]
}

// check compares a part of a run with its sums.
func (t *table) check(p placed, from, to uint64) error {
	if !asPut(t.data[p.at:][:p.bytes], t.sumsOf(p), from, to) {
		return t.damaged()
	}
	return nil
}

func (t *table) damaged() error {
	return fmt.Errorf("%w to %s: mount again, with another --index-dir if that disk fails", errListing, t.dir)
}

// caught makes a fault in the table an error of the function that defers it. It must
// be deferred itself.
func (t *table) caught(err *error) {
	p := recover()
	if p == nil {
		return
	}
	if !storage.IsFault(p) {
		panic(p) // our own mistake
	}
	*err = t.damaged()
}

// lookUp gives a file of a directory, as it was listed, and makes path its path.
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

// locate gives the numbers of the first file that has some of a range of the object,
// and of the one behind the last, unchecked. The file with number near is tried
// before all are, and the one behind it; -1: none.
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
