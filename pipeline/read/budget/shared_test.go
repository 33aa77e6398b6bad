package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// keeper is a member that holds what it is allowed, and frees it when it is told to.
type keeper struct{ allowed, held, lent, readers, pinned int64 }

func (k *keeper) Allow(bytes int64) { k.allowed = bytes }
func (k *keeper) Held() int64       { return k.held }
func (k *keeper) Lent() int64       { return k.lent }
func (k *keeper) Readers() int64    { return k.readers }
func (k *keeper) Shrink()           { k.held = max(min(k.held, k.allowed), k.pinned) }
func (k *keeper) ShrinkDisk()       {}

func TestSharesOfBudget(t *testing.T) {
	m := NewShared(1000)
	a, b := &keeper{readers: 1}, &keeper{readers: 1}
	first := m.Share()
	first.Join(a, 100)
	require.EqualValues(t, 1000, a.allowed, "one that is alone has all")
	require.False(t, first.Ask())

	a.held, a.lent, a.pinned = 1000, 50, 800
	second := m.Share()
	second.Join(b, 100)
	require.EqualValues(t, 500, a.allowed)
	require.EqualValues(t, 200, b.allowed, "what the other one still holds nobody is given")
	a.pinned = 0
	require.True(t, second.Ask())
	require.EqualValues(t, 500, b.allowed)
	require.EqualValues(t, 500, a.held)

	b.lent = 126 // an eighth of all, since the other one has returned any
	require.True(t, second.Ask())
	require.EqualValues(t, 100, a.allowed, "it rests")
	require.EqualValues(t, 900, b.allowed)
	b.held = 900

	a.lent++
	require.True(t, first.Ask(), "it is read again")
	require.EqualValues(t, 500, a.allowed)
	require.EqualValues(t, 500, b.held)

	b.held, b.pinned = 300, 300
	second.Retire()
	require.EqualValues(t, 500, second.frozen, "it holds that until it has gone")
	second.Leave()
	require.EqualValues(t, 1000, a.allowed)
}

// If many members are idle, they leave half to those that are read.
func TestIdleUsersNeverHoldMoreThanHalf(t *testing.T) {
	m := NewShared(1000)
	for range 9 {
		m.Share().Join(&keeper{}, 200)
	}
	k := &keeper{readers: 1}
	m.Share().Join(k, 200)
	require.InDelta(t, 500, k.allowed, 1)
}

func TestDiskIsReservedOnlyOnce(t *testing.T) {
	m := NewShared(1000)
	a, b := m.Share(), m.Share()
	require.True(t, a.TakeDisk(60, 100))
	require.False(t, b.TakeDisk(41, 100))
	require.EqualValues(t, 40, b.DiskLeft(100))
	require.True(t, b.TakeDisk(1000, 0), "there is no bound")
	b.Leave()
	a.Leave()
	require.EqualValues(t, 100, a.DiskLeft(100))
}
