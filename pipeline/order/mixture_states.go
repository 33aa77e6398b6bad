package order

import (
	"fmt"
	"slices"
)

// An epoch of a mixture runs through epochs of its sources. Those of which it needs a large part
// are held with its arrangement, so that their states are kept, stored and dropped with it:
//
//	source 0   ────────────┤ epoch 0 ├──────────────────     held
//	source 1   ──┤ 7 ├┤ 8 ├┤ 9 ├┤ 10 ├┤ 11 ├─             held
//	source 2   ─────────────────────────────┤ a little of epoch 0, of very many records
//	                                                        not held: states as they come
//
// All others are made when they are reached; the last two of each source are kept (Mixture.sub).

const (
	// heldPart sets which part of a source's epoch, 1/heldPart, a mixture's epoch must need to hold
	// it: the states of the whole are computed even if those of a part would do.
	heldPart = 2
	// mostHeld bounds the passes over a source whose epochs are held. With more of them, each is
	// such a small part of the whole that its states are quickly computed again.
	mostHeld = 16
)

// heldEpochs are the held epochs of a source, starting with number first.
type heldEpochs struct {
	first  uint64
	epochs []*Epoch
}

// of returns an epoch, or nil if it is not held.
func (h *heldEpochs) of(epoch uint64) *Epoch {
	if epoch < h.first || epoch-h.first >= uint64(len(h.epochs)) {
		return nil
	}
	return h.epochs[epoch-h.first]
}

// arrange makes the arrangement of an epoch. It can't fail: NewMixture has already made an epoch of
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
		panic(err) // NewMixture has made one like it without an error
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

// store appends the states of all epochs, one after another.
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

// restore loads them. If one can't be restored, those before it stay loaded: they are as valid as
// if they had been stored alone.
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
