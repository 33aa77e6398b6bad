package cubes

import (
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// blocks decodes the blocks of a buffer of blosc that are wanted, and none else, where these are
// at most half of all: a crop often needs few elements of a long brick. It says whether it did.
func (w *worker) blocks(t *task, stored []byte) (done bool, err error) {
	f := t.field
	if !f.Array.Chain.Blocks() {
		return false, nil
	}
	h, err := blosc.Parse(stored, int64(len(stored)), f.brickBytes)
	if err != nil || h.Blocks() < 2 || !f.copier.Pieces(h.BlockBytes) {
		return false, nil // decoding all of it says what is wrong
	}
	w.wanted = append(w.wanted[:0], make([]bool, h.Blocks())...)
	some := 0
	for i := range t.wants {
		first, last := h.BlocksOf(f.copier.Span(&t.wants[i].part))
		for b := first; b < last; b++ {
			if !w.wanted[b] {
				w.wanted[b] = true
				some++
			}
		}
	}
	if 2*some > h.Blocks() {
		return false, nil
	}
	for b, is := range w.wanted {
		if !is {
			continue
		}
		begin, end := h.Range(b, b+1)
		if int64(cap(w.brick)) < end-begin {
			w.brick = make([]byte, end-begin)
		}
		part := w.brick[:end-begin]
		if err := w.blosc.Decode(part, stored, h, b, b+1); err != nil {
			return false, err
		}
		for i := range t.wants {
			p := &t.wants[i].part
			if low, high := f.copier.Span(p); low < end && high > begin && !t.wants[i].r.calledOff() {
				f.copier.Copy(t.wants[i].crop, zarr.Window{Bytes: part, OffsetBytes: begin}, p)
			}
		}
	}
	w.blockCount.Add(uint64(some))
	return true, nil
}
