package order

import (
	"fmt"
	"slices"
)

// An epoch of a mixture goes through epochs of its sources. Those of which it needs the
// most are held with its arrangement, so that their states are kept, stored and dropped
// with it:
//
//	source 0   ────────────┤ epoch 0 ├──────────────────     held
//	source 1   ──┤ 7 ├┤ 8 ├┤ 9 ├┤ 10 ├┤ 11 ├─             held
//	source 2   ─────────────────────────────┤ a little of epoch 0, of very many records
//	                                                        not held: states as they come
//
// All others are made when they are come to; the last two of each source stay (Mixture.sub).

const (
	// heldPart is which part of a source's epoch a mixture's epoch must need to hold it: the
	// states of all of it are computed, though those of a part are enough.
	heldPart = 2
	// mostHeld is of how many passes of a source epochs are held. In more of them each is so
	// small a part of the whole that its states are soon computed again.
	mostHeld = 16
)

// heldEpochs are the held epochs of a source, from number first on.
type heldEpochs struct {
	first  uint64
	epochs []*Epoch
}

// of gives an epoch, nil where it is not held.
func (h *heldEpochs) of(epoch uint64) *Epoch {
	if epoch < h.first || epoch-h.first >= uint64(len(h.epochs)) {
		return nil
	}
	return h.epochs[epoch-h.first]
}

// arrange makes the arrangement of an epoch. It can't fail: NewMixture has made an epoch of
// each source.
func (m *Mixture) arrange(epoch uint64) *arrangement {
	begin := epoch * m.length
	from, to := make([]uint64, len(m.sources)), make([]uint64, len(m.sources))
	m.shares.CountFirst(begin, from)
	m.shares.CountFirst(begin+m.length, to)
	held := make([]heldEpochs, len(m.sources))
	var states mixStates
	for i := range m.sources {
		h, total := &held[i], m.sources[i].records()
		if h.first = from[i] / total; !m.known[i].states || to[i]-from[i] > mostHeld*total {
			continue
		}
		for n := h.first; n*total < to[i]; n++ {
			var e *Epoch
			if needed := min(to[i], (n+1)*total) - max(from[i], n*total); needed >= total/heldPart {
				e = m.mustSub(i, n)
				states = append(states, e)
			}
			h.epochs = append(h.epochs, e)
		}
	}
	a := &arrangement{start: func() walker { return m.walker(begin, held) }}
	if len(states) > 0 {
		a.states = states
	}
	return a
}

func (m *Mixture) mustSub(source int, epoch uint64) *Epoch {
	e, err := m.sub(source, epoch)
	if err != nil {
		panic(err) // NewMixture has made one like it
	}
	return e
}

// mixStates are the states of the epochs that an epoch of a mixture holds.
type mixStates []*Epoch

func (s mixStates) whole() bool {
	return !slices.ContainsFunc(s, func(e *Epoch) bool { return !e.Prepared() })
}

func (s mixStates) prepare() (parts []func(stop func() bool)) {
	for _, e := range s {
		parts = append(parts, e.Prepare()...)
	}
	return parts
}

func (s mixStates) storedBytes() (n uint64) {
	for _, e := range s {
		n += e.StoredStatesBytes()
	}
	return n
}

// store appends the states of each, one behind the other.
func (s mixStates) store(dst []byte) []byte {
	if !s.whole() {
		return dst
	}
	dst = slices.Grow(dst, int(s.storedBytes()))
	for _, e := range s {
		dst = e.StoreStates(dst)
	}
	return dst
}

// restore loads them. Those before the first that can't be restored are there then: they
// are as good as if they alone had been stored.
func (s mixStates) restore(stored []byte) error {
	if uint64(len(stored)) != s.storedBytes() {
		return fmt.Errorf("order: the states of this epoch take %d bytes, not %d", s.storedBytes(), len(stored))
	}
	for _, e := range s {
		n := e.StoredStatesBytes()
		if err := e.RestoreStates(stored[:n]); err != nil {
			return err
		}
		stored = stored[n:]
	}
	return nil
}
