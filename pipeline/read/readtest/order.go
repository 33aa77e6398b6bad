package readtest

import "math/rand/v2"

// List is a sequence given by a slice.
type List []uint64

func (l List) Len() uint64 { return uint64(len(l)) }
func (l List) Records(k uint64, dst []uint64) int {
	if k >= uint64(len(l)) {
		return 0
	}
	return copy(dst, l[k:])
}

// ReservoirOrder returns a sequence of all records as in pipeline/order/ORDER.md: lanes, each with
// a buffer of its own, alternating.
func ReservoirOrder(seed uint64, x *Index, lanes, size int) List {
	rng := rand.New(rand.NewPCG(seed, 0))
	n := len(x.ExtentTable)
	var out List
	order := rng.Perm(len(x.ShardTable))
	var s []uint64
	for _, i := range order {
		for r := range x.ShardTable[i].Records {
			s = append(s, x.ShardTable[i].First+r)
		}
	}
	ls := make([]List, lanes)
	for l := range ls {
		lane := s[n*l/lanes : n*(l+1)/lanes]
		var slots []uint64
		for len(lane) > 0 || len(slots) > 0 {
			for len(slots) < max(1, size/lanes) && len(lane) > 0 {
				slots, lane = append(slots, lane[0]), lane[1:]
			}
			j := rng.IntN(len(slots))
			ls[l] = append(ls[l], slots[j])
			slots[j] = slots[len(slots)-1]
			slots = slots[:len(slots)-1]
		}
	}
	for i := 0; len(out) < n; i++ {
		for _, l := range ls {
			if i < len(l) {
				out = append(out, l[i])
			}
		}
	}
	return out
}

// RandomOrder returns all records in random order.
func RandomOrder(seed uint64, x *Index) List {
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make(List, len(x.ExtentTable))
	for i, r := range rng.Perm(len(out)) {
		out[i] = uint64(r)
	}
	return out
}

// InOrder returns all records in the order in which they are stored.
func InOrder(x *Index) List {
	out := make(List, len(x.ExtentTable))
	for i := range out {
		out[i] = uint64(i)
	}
	return out
}

// Deal returns the records of worker w of n.
func (l List) Deal(w, n int) List {
	var out List
	for i := w; i < len(l); i += n {
		out = append(out, l[i])
	}
	return out
}
