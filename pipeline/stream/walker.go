package stream

import (
	"fmt"
	"sort"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// walkRecords is how many records a walker looks up at a time.
const walkRecords = 256

// walker is a position in worker w's data: record k, which begins at offset, and the sizes of some
// records from there on. Offsets count from the end of the prologue. It must not be used
// concurrently.
type walker struct {
	set *Set
	w   uint64

	k      uint64 // the current record
	offset int64  // where it begins

	// The records that have been looked up; i is the index of the current one. The record before
	// the first is looked up too, for its key.
	i       int
	records []uint64
	sizes   []int64  // after the equal-key rule
	renamed []bool   // the equal-key rule applies
	hashes  []uint64 // of records; scratch space

	kept       []byte // record keptRecord, after renaming
	keptRecord uint64

	row   []byte // row of record rowOf-1, for reads that begin or end within it
	rowOf uint64 // 0: none
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

// fill looks up the records from k on. It returns false at the end of the stream.
func (w *walker) fill() bool {
	if w.i < len(w.records) {
		return true
	}
	src := w.set.source
	first := w.k
	behind := 0 // 1 if the record before k is also looked up
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

// place returns the location of the current record; fill must have returned true.
func (w *walker) place() catalog.Extent {
	var at [1]catalog.Extent
	w.set.source.records.Extents(w.records[w.i:w.i+1], at[:])
	return at[0]
}

// size returns the size of the current record; fill must have returned true.
func (w *walker) size() int64 { return w.sizes[w.i] }

// step moves to the next record.
func (w *walker) step() {
	w.offset += w.sizes[w.i]
	w.i++
	w.k++
	if w.kept != nil {
		w.forgetRenamed()
	}
}

// reset moves to record k, which begins at offset.
func (w *walker) reset(k uint64, offset int64) {
	if k != w.k {
		w.records, w.i = w.records[:0], 0
	}
	w.k, w.offset = k, offset
}

// seek moves to the record that contains offset, or to the end of the stream.
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

// seekRecord moves to record k, or to the end of the stream.
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

// maxKeptBytes bounds the renamed records and rows that all walkers keep together while readers go
// through them in several reads.
const maxKeptBytes = 16 << 20

// rename returns the record at which w stands, as changed by the equal-key rule, in memory of r or
// of the walker.
func (w *walker) rename(r *Reply, record []byte) ([]byte, error) {
	if w.kept != nil && w.keptRecord == w.k {
		return w.kept, nil
	}
	w.forgetRenamed()
	var err error
	r.renamed, err = w.set.source.renamer.Rename(r.renamed[:0], record, w.k)
	if err != nil {
		return nil, fmt.Errorf("record %d of worker %d: %w", w.k, w.w, err)
	}
	if n := len(r.renamed); n > MaxReadBytes {
		renamed := r.renamed
		r.renamed = nil // too large for a pooled reply to keep
		w.keepRenamed(renamed)
		return renamed, nil
	}
	return r.renamed, nil
}

// keepRenamed keeps the record at which w stands, if there is room.
func (w *walker) keepRenamed(record []byte) {
	n := int64(cap(record))
	if w.set.source.kept.Add(n) > maxKeptBytes {
		w.set.source.kept.Add(-n)
		return
	}
	w.kept, w.keptRecord = record, w.k
}

// forgetRenamed frees what keepRenamed kept.
func (w *walker) forgetRenamed() {
	w.set.source.kept.Add(-int64(cap(w.kept)))
	w.kept = nil
}
