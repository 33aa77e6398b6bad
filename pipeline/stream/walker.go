package stream

import (
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// walkRecords is how many records a walker looks up at a time.
const walkRecords = 256

// walker is a place in worker w's data: record k, which begins at offset, and
// the sizes of some records from there on. Offsets count from the end of the
// prologue. It is not for concurrent use.
type walker struct {
	set *Set
	w   uint64

	k      uint64 // the record it stands at
	offset int64  // where that begins

	// The records that have been looked up: i is the one it stands at. The
	// record before the first is looked up too, for its key.
	i       int
	records []uint64
	sizes   []int64  // after the equal-key rule
	renamed []bool   // the equal-key rule applies
	hashes  []uint64 // of records; scratch

	kept       []byte // record keptRecord, renamed
	keptRecord uint64

	row   []byte // of record rowOf-1, for reads that begin or end within it
	rowOf uint64 // 0: of none
}

func newWalker(s *Set, w uint64) *walker {
	return &walker{
		set: s, w: w,
		records: make([]uint64, 0, walkRecords+1),
		sizes:   make([]int64, 0, walkRecords+1),
		renamed: make([]bool, walkRecords+1),
		hashes:  make([]uint64, walkRecords+1),
	}
}

// fill looks up the records from k on; it returns false at the stream's end.
func (w *walker) fill() bool {
	if w.i < len(w.records) {
		return true
	}
	src := w.set.source
	first := w.k
	behind := 0 // 1 when the record before k is among those looked up
	if src.renamer != nil && first > 0 {
		behind = 1
	}
	buf := w.records[:cap(w.records)]
	n := w.set.view.Records(w.w, first-uint64(behind), buf[:walkRecords+behind])
	w.records, w.sizes, w.i = buf[:n], w.sizes[:n], behind
	if n <= behind {
		w.records, w.i = buf[:0], 0
		return false
	}
	src.records.Sizes(w.records, w.sizes)
	clear(w.renamed)
	if src.renamer == nil || !src.records.KeyHashes(w.records, w.hashes[:n]) {
		return true
	}
	for i := 1; i < n; i++ {
		if w.hashes[i] == w.hashes[i-1] && w.hashes[i] != 0 {
			w.renamed[i] = true
			w.sizes[i] += src.records.Growth(w.records[i], first+uint64(i-behind))
		}
	}
	return true
}

// place is where the record is that it stands at; fill must have returned true.
func (w *walker) place() catalog.Extent {
	var at [1]catalog.Extent
	w.set.source.records.Extents(w.records[w.i:w.i+1], at[:])
	return at[0]
}

// size is that of the record it stands at; fill must have returned true.
func (w *walker) size() int64 { return w.sizes[w.i] }

// step goes on to the next record.
func (w *walker) step() {
	w.offset += w.sizes[w.i]
	w.i++
	w.k++
	if w.kept != nil {
		w.forgetRenamed()
	}
}

// reset goes to record k, which begins at offset.
func (w *walker) reset(k uint64, offset int64) {
	if k != w.k {
		w.records, w.i = w.records[:0], 0
	}
	w.k, w.offset = k, offset
}

// seek goes to the record that holds offset, or to the stream's end.
func (w *walker) seek(l *layout, offset int64) {
	samples := l.samples[w.w]
	i := sort.Search(len(samples), func(i int) bool { return samples[i] > offset }) - 1
	switch {
	case i < 0:
		w.reset(0, 0)
	case w.offset > offset || w.offset < samples[i]:
		w.reset(uint64(i)*sampleRecords, samples[i])
	}
	for w.fill() && w.offset+w.size() <= offset {
		w.step()
	}
}

// seekRecord goes to record k, or to the stream's end.
func (w *walker) seekRecord(l *layout, k uint64) {
	samples := l.samples[w.w]
	i := min(k/sampleRecords, uint64(max(len(samples), 1)-1))
	switch {
	case len(samples) == 0:
		w.reset(0, 0)
	case w.k > k || w.k < i*sampleRecords:
		w.reset(i*sampleRecords, samples[i])
	}
	for w.k < k && w.fill() {
		w.step()
	}
}
