package decode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// bytesOf are those of a range of a decoded shard, whose records lie one behind the other.
func (o *owner) bytesOf(offset, size int64) []byte {
	return slices.Concat(o.data.Records...)[offset : offset+size]
}

// part is a load of a part of a piece, as the records of one phase of a sample are.
func (o *owner) part(number int, from, to int64) *Load {
	return loadOf(number, 0, o.data.Index.ExtentTable[number].OffsetBytes+from, to-from)
}

// Epochs of a sample want different records of a piece, at the same time: each load is brought,
// whichever comes first and however they lie in the piece.
func TestLoadsOfSeveralPartsOfPieceAreServed(t *testing.T) {
	for seed := range uint64(30) {
		o, set := newOwner(t, oneMember)
		dice := rand.New(rand.NewPCG(seed, 1))
		var parts []*Load
		draw := func(number int) *Load {
			size := o.data.Index.ExtentTable[number].SizeBytes
			from := dice.Int64N(size)
			p := o.part(number, from, from+1+dice.Int64N(size-from))
			parts = append(parts, p)
			return p
		}
		assigned := make(chan struct{})
		o.room = func(l *Load) bool {
			<-assigned // all are there before the first is brought
			return true
		}
		asked := false
		o.passing = func(number int) *Load { // and one comes while it is asked what to keep
			if number != 40 || asked {
				return nil
			}
			asked = true
			set.Assign(draw(number), budget.Demand)
			set.Assign(draw(number), budget.Demand)
			return draw(number)
		}
		for _, number := range []int{10, 30, 30, 30, 30, 31, 31, 80} {
			set.Assign(draw(number), budget.Demand)
		}
		close(assigned)
		o.mu.Lock()
		for o.brought < 11 && len(o.failed) == 0 {
			o.change.Wait()
		}
		o.mu.Unlock()
		require.Empty(t, o.failed)
		require.Len(t, parts, 11)
		for _, p := range parts {
			require.Equal(t, o.bytesOf(p.Layout.Start(), p.Layout.SizeBytes), p.Memory, fmt.Sprintf("seed %d: [%d, %d) of piece %d", seed, p.Layout.Start(), p.Layout.End(), p.Piece))
		}
	}
}
