package catalog

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

const mib = 1 << 20

// beginAll begins shards of sizeBytes until one must wait.
func beginAll(a *admission, sizeBytes int64) (begun []*admitted) {
	for len(begun) < 1000 {
		s := a.try(sizeBytes)
		if s == nil {
			break
		}
		begun = append(begun, s)
	}
	return begun
}

// At first as many shards begin as would fit if they were short lines, and at least one; then as
// many as fit.
func TestAdmitsAsManyShardsAsAreExpectedToFit(t *testing.T) {
	a := newAdmission(100 * mib)
	begun := beginAll(a, 1000*mib)
	require.Len(t, begun, 1)
	begun[0].reached(10*mib, 10*mib/1000)
	begun = append(begun, beginAll(a, 1000*mib)...)
	require.InDelta(t, 100/1.5, len(begun), 2, "of each MiB a thousandth is held")

	for _, s := range begun[1:] { // they turn out to hold ten times as much
		s.reached(100*mib, mib)
	}
	require.Nil(t, a.try(1000*mib))
	for _, s := range begun[2:] {
		s.reached(1000*mib, 10*mib)
		s.end()
	}
	require.Len(t, beginAll(a, 1000*mib), 4, "beside two that run, of 15 MiB each")
	require.Len(t, beginAll(newAdmission(100*mib), mib), 400)
}

// A waiting shard begins when another one ends or has turned out to be small, and returns when its
// context ends.
func TestWaitingShardIsAdmitted(t *testing.T) {
	a := newAdmission(mib)
	first, err := a.begin(t.Context(), 100*mib)
	require.NoError(t, err)
	for _, change := range []func(){first.end, func() { first.reached(50*mib, 100) }} {
		begun := make(chan *admitted)
		go func() {
			s, _ := a.begin(t.Context(), 100*mib)
			begun <- s
		}()
		require.Nil(t, a.try(100*mib))
		change()
		first = <-begun
		require.NotNil(t, first)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first.reached(50*mib, 40*mib)
	_, err = a.begin(ctx, 100*mib)
	require.ErrorIs(t, err, context.Canceled)
}

// The buffers of all shards that are read at a time fit into the bound, except that each core may
// have one.
func TestConcurrentShardsFollowFromMemory(t *testing.T) {
	remote, local := storage.DefaultProfile(storage.KindObject).Pass, storage.DefaultProfile(storage.KindSSD).Pass
	require.Equal(t, 32, ShardsAtATime(remote, true, 256*mib, 2))
	require.Equal(t, 32, ShardsAtATime(remote, true, 64*mib, 2))
	require.Equal(t, 5, ShardsAtATime(remote, true, 8*mib, 2))
	require.Equal(t, 2, ShardsAtATime(remote, true, 0, 2))
	require.Equal(t, 14, ShardsAtATime(remote, false, 64*mib, 2), "ranges have larger buffers")
	require.Equal(t, 64, ShardsAtATime(local, false, 256*mib, 64))
	require.Equal(t, 64, ShardsAtATime(local, false, 0, 64))
	require.Equal(t, 1, ShardsAtATime(local, false, 0, 1))
}

// A shard of so many records that its index alone takes more than a quarter of the memory is
// refused, with advice, even under --on-corrupt skip: it is not damaged. With more memory it is
// indexed.
func TestShardWhoseIndexExceedsMemoryIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("millions of records")
	}
	w := newWorld(t)
	// One long line in each block of 128 makes each size take eleven bits.
	block := append(bytes.Repeat([]byte("1\n"), 127), fmt.Appendf(nil, "%2000d\n", 1)...)
	const blocks = 44_000
	w.write("a.jsonl", bytes.Repeat(block, blocks))
	_, err := w.open(func(c *Config) { c.OnCorrupt = spec.CorruptSkip })
	require.ErrorContains(t, err, "a.jsonl: offset")
	require.ErrorContains(t, err, "records take more than the 8.0 MiB of --memory that a shard's index may have: raise --memory, or split the shard")
	c, err := w.open(func(c *Config) { c.MemoryBytes = 64 << 20 })
	require.NoError(t, err)
	require.EqualValues(t, 128*blocks, c.Records())
	require.NoError(t, c.Close())
}
