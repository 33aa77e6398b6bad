package budget

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

var errFault = errors.New("the file is gone")

// lender is a Lender that counts calls.
type lender struct{ released int }

func (*lender) Mapped() bool { return true }
func (*lender) Leased() bool { return false }
func (*lender) Check() error { return errFault }
func (*lender) Fault() error { return errFault }
func (l *lender) Release()   { l.released++ }

func TestPinsEachMemoryRangeOnceUpToLimit(t *testing.T) {
	var l Records
	memory := make([]Pins, 4)
	for range 3 {
		require.True(t, l.Hold(&memory[0], 0, 2))
	}
	require.True(t, l.Hold(&memory[1], 0, 2))
	require.False(t, l.Hold(&memory[2], 0, 2), "the limit")
	require.True(t, l.Hold(&memory[2], 2, 2), "of one call, not of the loan")
	require.True(t, memory[3].Kill())
	require.False(t, l.Hold(&memory[3], 0, 9), "what is dead is not lent")
	require.Equal(t, 3, l.Pinned())
	for i := range 3 {
		require.EqualValues(t, 1, memory[i].Count())
	}
	l.Release()
	require.Zero(t, l.Pinned())
	for i := range 3 {
		require.Zero(t, memory[i].Count())
	}
}

func TestReleaseReturnsAllAndRetainsNoBytes(t *testing.T) {
	var l Records
	var memory Pins
	own := new(lender)
	memory.Add(1)
	l.Keep(&memory)
	l.Records = append(l.Records, []byte("a"), []byte("b"))
	records := l.Records
	l.Lender = own
	l.Release()
	require.Zero(t, memory.Count())
	require.Equal(t, 1, own.released)
	require.Empty(t, l.Records)
	require.Equal(t, [][]byte{nil, nil}, records)
}

func TestPinnedMemoryIsAlwaysValid(t *testing.T) {
	var l Records
	require.False(t, l.Mapped())
	require.True(t, l.Leased())
	require.NoError(t, l.Check())
	require.NoError(t, l.Fault())
	l.Lender = new(lender)
	require.True(t, l.Mapped())
	require.False(t, l.Leased())
	require.ErrorIs(t, l.Check(), errFault)
	require.ErrorIs(t, l.Fault(), errFault)
}
