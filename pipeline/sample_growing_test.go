package pipeline

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
)

// A record that is in the snapshots of M epochs in a row is used ⌊M/n⌋ or ⌈M/n⌉ times, whatever
// arrives and leaves meanwhile, and however often the dataset is mounted again.
func TestRecordIsUsedAtMostItsShare(t *testing.T) {
	const n, epochs, window = 3, 11, 4
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	s := sampled(growingSpec(t, dir, runDir), n)
	s.Grow.Window, s.Grow.MinNew = fmt.Sprint(window, "shards"), "1shards"
	used := map[string]int{}  // by ID
	in := make([]int, epochs) // epochs whose window contained a shard
	arrive(t, dir, 0)
	d, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for epoch := range uint64(epochs) {
		if epoch > 0 {
			arrive(t, dir, int(epoch))
			if epoch == 5 {
				require.NoError(t, d.Close())
				d, err = Open(t.Context(), s, Options{})
				require.NoError(t, err)
			}
			begin(t, d, epoch)
		}
		_, ids := epochFiles(t, d, epoch, nil)
		for _, id := range ids {
			require.Equal(t, epoch%n, phaseOf(id, 11, n))
			used[string(id)]++
		}
		for shard := max(0, int(epoch)-window+1); shard <= int(epoch); shard++ {
			in[shard]++
		}
	}
	total := 0
	for shard, m := range in {
		for ordinal := range uint64(50 + shard) {
			id := binary.BigEndian.AppendUint64(nil, order.ID(fmt.Sprintf("s.%d.jsonl", shard)))
			times := used[string(binary.BigEndian.AppendUint64(id, ordinal))]
			require.GreaterOrEqual(t, times, m/n)
			require.LessOrEqual(t, times, (m+n-1)/n)
			total += times
		}
	}
	all := 0
	for _, times := range used {
		all += times
	}
	require.Equal(t, all, total, "nothing else was read")
}
