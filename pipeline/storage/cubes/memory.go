package cubes

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// fromMemory reads a range that is in the page cache. The bytes are the worker's, until it reads
// again.
func (w *worker) fromMemory(o storage.Object, p zarr.Place) ([]byte, bool) {
	if w.Storage.resident == nil {
		return nil, false
	}
	if w.open != o {
		w.closeResident()
		r, err := w.Storage.resident.OpenResident(o)
		if err != nil || r == nil {
			return nil, false
		}
		w.resident, w.open = r, o
	}
	if int64(cap(w.stored)) < p.SizeBytes {
		w.stored = make([]byte, p.SizeBytes)
	}
	b := w.stored[:p.SizeBytes]
	if !w.resident.ReadAt(b, p.OffsetBytes) {
		return nil, false
	}
	now, err := w.under.Stat(context.Background(), o.Path)
	if err != nil || storage.Compare(o, now) != nil {
		return nil, false // the ordinary read says what is wrong
	}
	return b, true
}

func (w *worker) closeResident() {
	if w.resident != nil {
		_ = w.resident.Close()
	}
	w.resident, w.open = nil, storage.Object{}
}
