package stream

import "fmt"

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
