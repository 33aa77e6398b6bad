package crops

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// opened is an object that a worker keeps open, to read from it the bytes that are in memory.
type opened struct {
	of       object
	listed   storage.Object
	present  bool
	resident storage.Resident // nil if it can't be read that way
}

// close closes it. Code that still holds it then finds nothing in memory.
func (o *opened) close() {
	if o.resident != nil {
		_ = o.resident.Close() // it was only read
		o.resident = nil       // users that still hold o read from the storage below
	}
}

// Bounds of the open objects: openedByAll for all workers together, but at least leastOpened for
// each. Crops of one region alternate between the objects around it.
const (
	openedByAll = 128
	leastOpened = 4
)

// mostOpened returns how many objects each of the given number of workers keeps open: the most
// recently read.
func mostOpened(workers int) int { return max(openedByAll/workers, leastOpened) }

// open returns an object, opening it if need be.
func (w *worker) open(of object) *opened {
	i := slices.IndexFunc(w.opened, func(o *opened) bool { return o.of == of })
	var o *opened
	if i >= 0 {
		o = w.opened[i]
		w.opened = append(slices.Delete(w.opened, i, i+1), o)
		return o
	}
	o = &opened{of: of}
	if o.listed, o.present = of.field.Object(of.number); o.present && w.caps.OpenResident != nil {
		if r, err := w.caps.OpenResident(o.listed); err == nil {
			o.resident = r
		} // otherwise the ordinary read returns the error
	}
	if len(w.opened) == w.mostOpened {
		w.opened[0].close()
		w.opened = slices.Delete(w.opened, 0, 1)
	}
	w.opened = append(w.opened, o)
	return o
}

// leave closes an object that is no longer the version that was listed.
func (w *worker) leave(o *opened) {
	o.close()
	w.opened = slices.DeleteFunc(w.opened, func(x *opened) bool { return x == o })
}

// outcome is a task done with bytes that may not be of the listed version.
type outcome struct {
	t   *task
	err error
}

// Bounds for reading neighbouring chunks together.
const (
	togetherBytes    = 128 << 10 // a worker's CPU cache has room for it and for a chunk
	togetherGapBytes = 1 << 10
)

// readMemory does those tasks whose bytes are in memory. Only after the last of them it checks that
// the object is still the listed version, and only then the tasks end. The tasks whose bytes are
// not in memory are appended to w.below.
func (w *worker) readMemory(o *opened, reads []*task) {
	slices.SortFunc(reads, func(a, b *task) int { return cmp.Compare(a.offset(), b.offset()) })
	w.made = w.made[:0]
	reads = slices.DeleteFunc(reads, func(t *task) bool {
		if t.size() > t.field.usual.stored {
			w.below = append(w.below, t) // there is no room for it yet; it gets room when its read has completed
			return true
		}
		if !t.long(w.longInMemory) {
			return false
		}
		if is, err := w.readLong(o, t); is {
			w.made = append(w.made, outcome{t, err})
		} else {
			w.keep(t, false)
			w.below = append(w.below, t)
		}
		return true
	})
	for len(reads) > 0 {
		n, begin, end := 1, reads[0].offset(), reads[0].offset()+reads[0].size()
		for n < len(reads) && reads[n].offset() <= end+togetherGapBytes && reads[n].offset()+reads[n].size()-begin <= togetherBytes {
			end = max(end, reads[n].offset()+reads[n].size())
			n++
		}
		stored, err := w.stored.room(end - begin)
		if err == nil && o.resident.ReadAt(stored, begin) {
			for _, t := range reads[:n] {
				at := t.offset() - begin
				w.storedBytes.Add(uint64(t.size()))
				w.made = append(w.made, outcome{t, w.decode(t, stored[at:at+t.size()])})
			}
		} else {
			w.below = append(w.below, reads[:n]...)
		}
		reads = reads[n:]
	}
	if len(w.made) == 0 {
		return
	}
	right := o.resident.Unchanged() == nil
	if !right {
		w.leave(o)
	}
	for _, m := range w.made {
		w.keep(m.t, right && m.err == nil)
		if right {
			m.t.finish(m.err)
		} else {
			w.below = append(w.below, m.t) // the ordinary read returns the error
		}
	}
	clear(w.made)
}

// indexInMemory reads an index that is in memory. The bytes belong to the worker, until its next
// read.
func (w *worker) indexInMemory(of object, p zarr.Place) ([]byte, bool) {
	o := w.open(of)
	if o.resident == nil {
		return nil, false
	}
	b, err := w.stored.room(p.SizeBytes)
	if err != nil || !o.resident.ReadAt(b, p.OffsetBytes) {
		return nil, false
	}
	if o.resident.Unchanged() != nil {
		w.leave(o)
		return nil, false
	}
	return b, true
}
