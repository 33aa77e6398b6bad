package mapped

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A shard whose copy is gone is mapped again, with another mapping; the stale one is closed when it
// is not pinned any more. An error that a stale mapping shows later is not a second loss.
func TestShardWithLostCopyIsRemapped(t *testing.T) {
	s := new(files)
	m, o := newMaps(t, s, nil)
	require.NotNil(t, o.ask(21))
	var l, other Lent
	o.lend(&l, 20)
	o.lend(&other, 21)
	old := s.last(2)
	old.lost.Store(true)
	require.ErrorIs(t, l.Check(), storage.ErrReadAgain)
	require.ElementsMatch(t, []int{20, 21}, o.forgotten, "all of the mapping")
	require.Empty(t, o.lost, "nothing is wrong with a record")
	l.Release()

	fresh := o.ask(20)
	require.NotNil(t, fresh)
	require.True(t, old != s.last(2))
	require.False(t, old.closed, "a record of it is lent")
	require.ErrorIs(t, other.Check(), storage.ErrReadAgain)
	other.Release()
	require.True(t, fresh == o.tables[20], "the new mapping stays")
	require.Equal(t, 1, m.losses[2])
	require.NotNil(t, o.ask(10), "another is opened, and the stale one closed")
	require.True(t, old.closed)
}

// A copy that is lost again and again is not mapped any more.
func TestShardWithRepeatedlyLostCopyIsRead(t *testing.T) {
	s := new(files)
	m, o := newMaps(t, s, nil)
	for range mostStale {
		var l Lent
		require.NotNil(t, o.ask(20))
		o.lend(&l, 20)
		s.last(2).lost.Store(true)
		require.ErrorIs(t, l.Check(), storage.ErrReadAgain)
		l.Release()
	}
	require.False(t, m.Request(new(Work), request(20)))
	require.LessOrEqual(t, s.open, 1, "stale mappings are closed as others are made")
}
