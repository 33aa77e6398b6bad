package readtest

import "math/rand/v2"

// Some is the part with the records that are true.
type Some []bool

func (p Some) Has(record uint64) bool { return p[record] }

func (p Some) Count(from, to uint64) (n uint64) {
	for _, has := range p[from:to] {
		if has {
			n++
		}
	}
	return n
}

// Of returns a sequence without the records of other parts.
func (p Some) Of(seq List) (left List) {
	for _, record := range seq {
		if p[record] {
			left = append(left, record)
		}
	}
	return left
}

// Parts returns subsets of a dataset's records: most, few, and every other shard.
func Parts(x *Index) map[string]Some {
	rng := rand.New(rand.NewPCG(5, 6))
	most, few, shards := make(Some, x.Records()), make(Some, x.Records()), make(Some, x.Records())
	for i := range most {
		most[i], few[i] = rng.IntN(10) > 0, rng.IntN(10) == 0
		shards[i] = x.ExtentTable[i].Shard%2 == 1
	}
	return map[string]Some{"most": most, "few": few, "every other shard": shards}
}
