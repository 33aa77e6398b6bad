package quality

import (
	"fmt"
	"math/rand/v2"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Compared is a shuffle and how well it mixes.
type Compared struct {
	Shuffle string `json:"shuffle"`
	Mix
	Picture *Picture `json:"-"` // nil if not requested
}

// Compare surveys an epoch and two other shuffles of the same records: shards in random order
// through a buffer, and a full permutation. o and epoch are the arguments that e was made with.
func Compare(e *order.Epoch, o spec.Order, epoch uint64, s Subject, r Resolution, goOn func() bool) ([]Compared, error) {
	list := []Compared{survey("this order", Walk(e), s, r, goOn)}
	list = append(list, survey(fmt.Sprintf("shards at random, a buffer of %d", o.SizeRecords),
		ShardsAndBuffer(s.ShardStarts, s.Part, o.SizeRecords, o.Seed), s, r, goOn))
	o.Shuffle = spec.ShuffleFull
	full, err := order.NewEpoch(o, epoch, s.ChunkStarts(o.ChunkBytes, o.ChunkRecords), s.Part)
	if err != nil {
		return nil, err
	}
	return append(list, survey("full permutation", Walk(full), s, r, goOn)), nil
}

func survey(name string, next Source, s Subject, r Resolution, goOn func() bool) Compared {
	mix, picture := Survey(next, s.ShardStarts, s.Part, r, goOn)
	return Compared{name, mix, picture}
}

// ShardsAndBuffer is the shuffle of loaders that shuffle shards and samples separately, as
// webdataset and tf.data commonly do. Shards are read in a random order, one after the other, into
// a buffer of size records; each incoming record replaces a random one, which is delivered. Records
// outside the part are skipped. Positions must ascend from call to call; records in between are
// stepped over.
func ShardsAndBuffer(shardStarts []uint64, part *order.Part, size, seed uint64) Source {
	r := rand.New(rand.NewPCG(seed, 0))
	shards := r.Perm(len(shardStarts) - 1)
	var at, end uint64 // in the current shard
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
	draw := func() (uint64, bool) {
		if len(buffer) == 0 {
			return 0, false
		}
		k := r.IntN(len(buffer))
		drawn := buffer[k]
		record, ok := source()
		if !ok {
			last := len(buffer) - 1
			record, buffer = buffer[last], buffer[:last]
			if k == last {
				return drawn, true
			}
		}
		buffer[k] = record
		return drawn, true
	}
	position := uint64(0)
	return func(k uint64, dst []uint64) int {
		for ; position < k; position++ {
			if _, ok := draw(); !ok {
				return 0
			}
		}
		for i := range dst {
			record, ok := draw()
			if !ok {
				return i
			}
			dst[i] = record
			position++
		}
		return len(dst)
	}
}
