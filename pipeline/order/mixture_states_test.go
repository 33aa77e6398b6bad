package order

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixtureWithStates returns a mixture of two sources with states and a small one without. Its
// epochs run one and a half times through the first source, and cover only a small part of the
// second.
func mixtureWithStates(t testing.TB) *Mixture {
	o := spec.Default().Order
	var sources []Source
	first := uint64(0)
	for _, chunks := range []uint64{3000, 40_000, 10} {
		starts := make([]uint64, chunks+1)
		for i := range starts {
			starts[i] = uint64(i) * 100
		}
		sources = append(sources, Source{First: first, Starts: starts})
		first += starts[chunks]
	}
	m, err := NewMixture(o, sharesOf(t, o.Seed, []uint64{45, 45, 10}), sources, 1_000_000)
	require.NoError(t, err)
	return m
}

// States that were computed, stored and restored give the same order as a plain walk, from every
// position, and a walk that starts deep in it replays no more than a stride.
func TestStatesOfMixtureAreStoredAndRestored(t *testing.T) {
	const epoch = 3
	plain, err := mixtureWithStates(t).Epoch(epoch)
	require.NoError(t, err)
	want := allOf(plain)

	e, err := mixtureWithStates(t).Epoch(epoch)
	require.NoError(t, err)
	require.Positive(t, e.StoredStatesBytes())
	require.False(t, e.Prepared())
	require.Empty(t, e.StoreStates(nil), "not all are there")
	for _, part := range e.Prepare() {
		part(func() bool { return false })
	}
	require.True(t, e.Prepared())
	stored := e.StoreStates(nil)
	require.EqualValues(t, e.StoredStatesBytes(), len(stored))
	require.Less(t, len(stored), 2*int(e.Len()), "about a quarter of a byte a record, of which a few are not of the epoch")

	other, err := mixtureWithStates(t).Epoch(epoch)
	require.NoError(t, err)
	require.Error(t, other.RestoreStates(stored[:len(stored)-1]))
	require.Error(t, other.RestoreStates(append(slices.Clone(stored[:8]), make([]byte, len(stored))...)))
	require.NoError(t, other.RestoreStates(stored))
	require.True(t, other.Prepared())
	for _, x := range []*Epoch{e, other} {
		for p := x.Len() - 100; p > 77_777; p -= 77_777 {
			got := make([]uint64, 100)
			require.Equal(t, 100, x.Cursor(p).Next(got))
			require.True(t, slices.Equal(want[p:p+100], got), "from %d", p)
		}
	}
	require.True(t, slices.Equal(want, allOf(other)))
}

// Epochs that were read stay in memory no longer than those of a single dataset: the sources'
// states that a walker of an old epoch holds are dropped with it.
func TestMemoryDropsOldMixtureEpochs(t *testing.T) {
	m, memory := mixtureWithStates(t), NewMemory(0)
	deal := spec.Default().Deal
	var epochs []*Epoch
	for n := range uint64(keptArrangements + 3) {
		e, err := m.Epoch(n)
		require.NoError(t, err)
		v, err := memory.View(e, nil, deal)
		require.NoError(t, err)
		v.Records(0, 900_000, make([]uint64, 10))
		epochs = append(epochs, e)
	}
	for i, e := range epochs {
		require.Equal(t, i >= 3, e.arranged.Load() != nil, "epoch %d", i)
	}
	for it := memory.recent.newer; it != &memory.recent; it = it.newer {
		if it.walker != nil {
			require.NotContains(t, epochs[:3], it.of.epoch)
		}
	}
	// A dropped epoch that is used again has the same records.
	v, err := memory.View(epochs[0], nil, deal)
	require.NoError(t, err)
	got, want := make([]uint64, 10), make([]uint64, 10)
	v.Records(0, 900_000, got)
	again, err := m.Epoch(0)
	require.NoError(t, err)
	again.Cursor(900_000 * deal.Workers).Next(want)
	require.Equal(t, want, got)
}
