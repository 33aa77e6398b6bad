package checkpoint

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Samples returns how many records of an epoch are consumed when a training loop has counted the
// given number of samples. It returns false for a number that no loop can reach.
//
// A loop that counts steps × batch × workers counts more than the records at the end of an epoch
// whose last batches are padded or not full (tail pad and keep): by less than one batch per worker.
// Any number of workers up to spec.MaxWorkers may read below epoch-N, even more than there are
// batches. Such a count means the end of the epoch: all records.
func (s Subject) Samples(samples uint64) (records uint64, possible bool) {
	if samples <= s.Records {
		return samples, true
	}
	if s.Deal.Tail == spec.TailDrop || s.Deal.Tail == "" {
		return 0, false
	}
	round := max(s.Deal.Batch, 1) * spec.MaxWorkers // at most 2⁴⁸
	return s.Records, samples-s.Records < round
}

// Position returns where training continues after the first taken records of an epoch. After all
// records that is the start of the next epoch, if that has begun; otherwise the end of this one.
func (s Subject) Position(epoch, taken uint64, nextHasBegun bool) Position {
	switch {
	case taken == 0:
		return Position{Epoch: epoch}
	case taken == s.Records && nextHasBegun && epoch < math.MaxUint64:
		return Position{Epoch: epoch + 1}
	}
	return Position{Epoch: epoch, Done: []order.Done{order.First(taken, s.Order)}}
}
