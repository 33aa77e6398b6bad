package mapped

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestRegionIsCheckedOnceAfterEviction(t *testing.T) {
	s := new(files)
	s.evictions.Store(9)
	m, o := newMaps(t, s, nil)
	r := o.ask(10)
	pin := func() bool {
		ok := r.PinResident(m.Evictions())
		if ok {
			r.Pins.Unpin()
		}
		require.Zero(t, r.Pins.Count())
		return ok
	}
	require.True(t, pin())
	require.Zero(t, s.looks.Load())
	s.evictions.Add(1)
	require.True(t, pin())
	require.True(t, pin())
	require.EqualValues(t, 1, s.looks.Load())
	s.cold.Store(true)
	require.True(t, pin(), "nothing was taken since")
	s.evictions.Add(1)
	require.False(t, pin())
	require.Equal(t, []int{10}, o.forgotten)
}

func TestFailedCheckMeansBadChangedOrGone(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(gone)) }()
	good := func() bool { return true }
	bad := func() bool { return false }
	touch := func() bool { return gone[0] == 0 }
	for name, c := range map[string]struct {
		check   func() bool
		changed bool
		want    error
	}{
		"good":                               {good, false, nil},
		"good, whatever comes later":         {good, true, nil},
		"bad, as the file is":                {bad, false, nil},
		"bad, and the file has changed":      {bad, true, storage.ErrChanged},
		"gone, though the file is the same":  {touch, false, ErrFault},
		"gone, as the file has been changed": {touch, true, storage.ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(files)
			m, o := newMaps(t, s, nil)
			r := o.ask(10)
			other := o.ask(20)
			o.ask(11)
			s.changed.Store(c.changed)
			require.True(t, r.Pins.Pin())
			err := r.Verify(c.check)
			r.Pins.Unpin()
			require.ErrorIs(t, err, c.want)
			if c.want == ErrFault {
				require.ErrorContains(t, err, "shard-1: bytes [0, 65536): its mapped bytes can't be read")
			}
			if c.want != storage.ErrChanged {
				require.Empty(t, o.forgotten)
				return
			}
			require.ElementsMatch(t, []int{10, 11}, o.forgotten, "all of the shard")
			require.False(t, m.Request(new(Work), request(12)), "nor is it mapped again")
			require.Same(t, other, o.tables[20])
		})
	}
}
