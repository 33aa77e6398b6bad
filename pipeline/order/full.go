package order

import "math/bits"

// feistelRounds is the number of rounds (ORDER.md, Shuffles).
const feistelRounds = 6

// full is the shuffle `full`: a Feistel network over the smallest even number of bits that holds
// T-1, applied repeatedly until the result is below T. It has no state, so any position costs the
// same.
type full struct {
	total uint64
	half  uint
	mask  uint64
	keys  [feistelRounds]uint64
}

func newFull(seed, epoch, total uint64) *full {
	width := 2
	if total > 0 {
		width = max(2, bits.Len64(total-1))
	}
	f := &full{total: total, half: uint(width+1) / 2}
	f.mask = 1<<f.half - 1
	for r := range f.keys {
		f.keys[r] = key("full", seed, epoch, uint64(r))
	}
	return f
}

// record returns perm(x).
func (f *full) record(x uint64) uint64 {
	for {
		l, r := x>>f.half, x&f.mask
		for _, k := range f.keys {
			l, r = r, l^(mix(k+r)&f.mask)
		}
		if x = l<<f.half | r; x < f.total {
			return x
		}
	}
}

func (f *full) next(p uint64, dst []uint64) {
	for i := range dst {
		dst[i] = f.record(p + uint64(i))
	}
}

func (f *full) seek(_, _ uint64) {}

// straight is the shuffle `none`.
type straight struct{}

func (straight) next(p uint64, dst []uint64) {
	for i := range dst {
		dst[i] = p + uint64(i)
	}
}

func (straight) seek(_, _ uint64) {}
