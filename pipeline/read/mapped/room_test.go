package mapped

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeliveredThenOldestPiecesAreEvictedButNeverPinned(t *testing.T) {
	m, o := newMaps(t, new(files), func(c *Config) { c.LimitBytes = 4 * block })
	for piece := 10; piece < 14; piece++ {
		require.NotNil(t, o.ask(piece))
	}
	require.True(t, o.tables[10].Pins.Pin())
	o.tables[12].Live.Add(-block)
	pinned := o.tables[10]
	for piece := 20; piece < 24; piece++ {
		require.NotNil(t, o.ask(piece))
	}
	require.Equal(t, []int{12, 11, 13, 20}, o.forgotten)
	require.Same(t, pinned, o.tables[10])
	require.Equal(t, 4*block, m.Stats().Bytes)
	pinned.Pins.Unpin()
}

func TestTablesAreEvictedToo(t *testing.T) {
	_, o := newMaps(t, new(files), func(c *Config) { c.TableLimitBytes = 250 })
	for piece := 10; piece < 14; piece++ {
		require.NotNil(t, o.ask(piece))
	}
	require.Equal(t, []int{10, 11}, o.forgotten)
}

// The pins are killed, the owner forgets, the pages are unmapped: in this order.
func TestRegionBeingEvictedCannotBePinned(t *testing.T) {
	s := new(files)
	_, o := newMaps(t, s, func(c *Config) { c.LimitBytes = block })
	r := o.ask(10)
	seen := 0
	o.onForget = func(victim *Region) {
		seen++
		require.Same(t, r, victim)
		require.False(t, victim.Pins.Pin())
		require.False(t, victim.PinResident(o.maps.Evictions()))
		require.EqualValues(t, 0, s.last(1).mem[0], "its pages are still there")
	}
	require.NotNil(t, o.ask(11))
	require.Equal(t, 1, seen)
	require.EqualValues(t, poison, s.last(1).mem[0])
	o.onForget = nil
}

func TestPieceIsReadIfAllMappingsArePinned(t *testing.T) {
	m, o := newMaps(t, new(files), func(c *Config) { c.LimitBytes = block })
	r := o.ask(10)
	require.True(t, r.Pins.Pin())
	require.Nil(t, o.ask(11))
	require.Equal(t, []int{11}, o.refused)
	require.Equal(t, block, m.Stats().Bytes)
	r.Pins.Unpin()
	require.NotNil(t, o.ask(11), "at once, as nothing was cold")
}

// The table of a piece that its owner has refused after all is not counted forever.
func TestRegionWithoutTableIsEvictedLikeOthers(t *testing.T) {
	_, o := newMaps(t, new(files), func(c *Config) { c.TableLimitBytes = 250 })
	for piece := 10; piece < 14; piece++ {
		r := o.ask(piece)
		require.NotNil(t, r)
		o.mu.Lock()
		delete(o.tables, piece)
		o.mu.Unlock()
		r.Live.Add(-block)
	}
	require.Empty(t, o.forgotten)
}

func TestMappingsAreClosedToMakeRoom(t *testing.T) {
	s := &files{most: 1}
	_, o := newMaps(t, s, nil)
	first := o.ask(10)
	require.Nil(t, o.ask(20), "what has not all gone out stays")
	for range fewSkips {
		require.Nil(t, o.ask(20))
	}
	first.Live.Add(-block)
	require.NotNil(t, o.ask(20))
	require.Equal(t, []int{10}, o.forgotten)
	require.True(t, s.last(1).closed)
	require.Equal(t, 1, s.open)
}
