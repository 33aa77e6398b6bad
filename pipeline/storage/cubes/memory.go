package cubes

import (
	"cmp"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// opened is an object that a worker has open, to read what memory has of it.
type opened struct {
	of       object
	listed   storage.Object
	present  bool
	resident storage.Resident // nil where nothing can be read so
}

// close closes it. Who still has it in hand finds nothing in memory any more.
func (o *opened) close() {
	if o.resident != nil {
		_ = o.resident.Close() // it was only read
		o.resident = nil       // who still has o reads below
	}
}

// Bounds of the objects that are open: of all workers together, but for leastOpened of each. Crops of a
// region go back and forth between as many as lie around it.
const (
	openedByAll = 128
	leastOpened = 4
)

// mostOpened is how many objects a worker of so many has open at a time, those that it read last.
func mostOpened(workers int) int { return max(openedByAll/workers, leastOpened) }

// open opens an object, or finds it open.
func (w *worker) open(of object) *opened {
	i := slices.IndexFunc(w.opened, func(o *opened) bool { return o.of == of })
	var o *opened
	if i >= 0 {
		o = w.opened[i]
		w.opened = append(slices.Delete(w.opened, i, i+1), o)
		return o
	}
	o = &opened{of: of}
	if o.listed, o.present = of.field.Object(of.number); o.present && w.Storage.resident != nil {
		if r, err := w.Storage.resident.OpenResident(o.listed); err == nil {
			o.resident = r
		} // the ordinary read says what is wrong
	}
	if len(w.opened) == w.mostOpened {
		w.opened[0].close()
		w.opened = slices.Delete(w.opened, 0, 1)
	}
	w.opened = append(w.opened, o)
	return o
}

// leave closes an object that is not the one any more that was listed.
func (w *worker) leave(o *opened) {
	o.close()
	w.opened = slices.DeleteFunc(w.opened, func(x *opened) bool { return x == o })
}

// outcome is a task that was done by bytes which may not be those that were listed.
type outcome struct {
	t   *task
	err error
}

// What is read together: bricks that lie side by side.
const (
	togetherBytes    = 128 << 10 // a worker's cache has room for it, and for a brick
	togetherGapBytes = 1 << 10
)

// readMemory does tasks of an object whose bytes are in memory. That it was the one that was
// listed is looked at behind the last of them, and only then any ends. Of the others, w.below
// gets those whose bytes are not in memory.
func (w *worker) readMemory(o *opened, reads []*task) {
	slices.SortFunc(reads, func(a, b *task) int { return cmp.Compare(a.offset(), b.offset()) })
	w.made = w.made[:0]
	reads = slices.DeleteFunc(reads, func(t *task) bool {
		if t.size() > t.field.usual.stored {
			w.below = append(w.below, t) // there is no room for it yet: when it has come there is
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
			w.below = append(w.below, m.t) // the ordinary read says what is wrong
		}
	}
	clear(w.made)
}

// indexInMemory reads an index that is in memory. The bytes are the worker's, until it reads again.
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
