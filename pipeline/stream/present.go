package stream

import "fmt"

// rows are records that are delivered as rows (format.Presenter).
type rows struct {
	records
	bytes int64 // per row
}

func (r rows) Sizes(records []uint64, dst []int64) {
	for i := range records {
		dst[i] = r.bytes
	}
}

// present appends to r the part of [*pos, to) that the row of the walker's record covers, and
// advances both. It reports whether the row was delivered to its end (whole). Rows are made
// directly in the memory that is delivered: a buffer of the reply, or a block. Nothing else is
// allocated.
//
// Reads may present rows concurrently: a row depends on its record alone.
func (h *Handle) present(r *Reply, wk *walker, record []byte, pos *int64, to int64, most int) (whole bool, err error) {
	begin, end := *pos-wk.offset, min(to-wk.offset, wk.size())
	if begin == 0 && end == wk.size() {
		err = h.set.source.presenter.Present(r.space(int(end), most), record)
	} else {
		var row []byte
		if row, err = wk.presented(r, record); err == nil {
			copy(r.space(int(end-begin), most), row[begin:end])
		}
	}
	if err != nil {
		return false, wk.cannotPresent(err)
	}
	*pos = wk.offset + end
	if end < wk.size() {
		return false, nil
	}
	wk.step()
	return true, nil
}

// presented returns the whole row of the record at which w stands. The next sequential read needs
// the rest of it, so w keeps it if there is room.
func (w *walker) presented(r *Reply, record []byte) ([]byte, error) {
	if w.rowOf == w.k+1 {
		return w.row, nil
	}
	src := w.set.source
	n := src.presenter.RowBytes()
	if w.row == nil && src.kept.Add(int64(n)) <= maxKeptBytes {
		w.row = make([]byte, n)
	} else if w.row == nil {
		src.kept.Add(-int64(n))
		r.renamed = resize(r.renamed, n)
		return r.renamed, src.presenter.Present(r.renamed, record)
	}
	w.rowOf = 0
	if err := src.presenter.Present(w.row, record); err != nil {
		return nil, err
	}
	w.rowOf = w.k + 1
	return w.row, nil
}

// cannotPresent adds the record at which w stands to err.
func (w *walker) cannotPresent(err error) error {
	place := w.place()
	return fmt.Errorf("%s: record %d: %w: leave the file out with a pattern, or mount without --as", w.set.source.records.Shard(place.Shard).Object.Path, place.Ordinal, err)
}

// forget frees what w keeps; w is not used afterwards.
func (w *walker) forget() {
	w.forgetRenamed()
	w.set.source.kept.Add(-int64(cap(w.row)))
	w.row, w.rowOf = nil, 0
}
