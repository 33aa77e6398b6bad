package quality

import (
	"math/rand/v2"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// Mix is how well a whole sequence of records mixes shards.
type Mix struct {
	Estimate
	// Neighbours is the share of records that come right behind one of the same
	// shard; Independent is what it would be if every record were drawn on its own,
	// Σ q(s)².
	Neighbours  float64 `json:"neighbours_of_one_shard"`
	Independent float64 `json:"neighbours_if_independent"`
}

// Next fills dst with the records that follow and returns how many there were,
// fewer than len(dst) only at the end.
type Next func(dst []uint64) int

// OfSequence measures all of a sequence, about 40 ns a record beside what next
// takes. shardStarts are the first records of the shards, ascending, and the number
// of all; part is what a split leaves of them. It gives up, with what it has, when
// goOn says no.
func OfSequence(next Next, shardStarts []uint64, part *order.Part, goOn func() bool) Mix {
	m := newMeter(shardStarts, part)
	shards := len(m.starts) - 1
	total := float64(max(part.Count(0, m.starts[shards]), 1))
	var mix Mix
	for s := range shards {
		q := float64(part.Count(m.starts[s], m.starts[s+1])) / total
		mix.Independent += q * q
	}
	batch := make([]uint64, BatchRecords)
	records, same, last := 0, 0, -1
	for goOn() {
		n := next(batch)
		for _, r := range batch[:n] {
			s := m.shardOf(r)
			if s == last {
				same++
			}
			last = s
		}
		records += n
		if n < BatchRecords {
			break
		}
		if m.degrees > 0 {
			m.add(batch)
		}
	}
	if records > 1 {
		mix.Neighbours = float64(same) / float64(records-1)
	}
	mix.Estimate = m.estimate(true)
	return mix
}

// Walk is G from its start.
func Walk(e *order.Epoch) Next { return e.Cursor(0).Next }

// ShardsAndBuffer is what loaders do that shuffle shards and samples apart, as
// webdataset and tf.data are commonly used: shards in a random order, read one
// after the other, into a buffer of size records out of which a random one goes
// for each that comes. Records that are not of the part are passed over.
func ShardsAndBuffer(shardStarts []uint64, part *order.Part, size, seed uint64) Next {
	r := rand.New(rand.NewPCG(seed, 0))
	shards := r.Perm(len(shardStarts) - 1)
	var at, end uint64 // in the shard that is read
	source := func() (uint64, bool) {
		for {
			for at == end {
				if len(shards) == 0 {
					return 0, false
				}
				at, end = shardStarts[shards[0]], shardStarts[shards[0]+1]
				shards = shards[1:]
			}
			at++
			if part.Has(at - 1) {
				return at - 1, true
			}
		}
	}
	var buffer []uint64
	for uint64(len(buffer)) < max(size, 1) {
		record, ok := source()
		if !ok {
			break
		}
		buffer = append(buffer, record)
	}
	return func(dst []uint64) int {
		for i := range dst {
			if len(buffer) == 0 {
				return i
			}
			k := r.IntN(len(buffer))
			dst[i] = buffer[k]
			record, ok := source()
			if !ok {
				record = buffer[len(buffer)-1]
				buffer = buffer[:len(buffer)-1]
				if k == len(buffer) {
					continue
				}
			}
			buffer[k] = record
		}
		return len(dst)
	}
}
