package local

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/uring"
)

func TestDirectReadsFollowFlagAndDataset(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	for _, c := range []struct {
		direct        Direct
		fits, exceeds uring.Direct
	}{
		{DirectAuto, uring.DirectNever, uring.DirectCold},
		{DirectOn, uring.DirectAlways, uring.DirectAlways},
		{DirectOff, uring.DirectNever, uring.DirectNever},
	} {
		t.Run(string(c.direct), func(t *testing.T) {
			s := openDirectly(t, root, openEngine(t, uring.ModeAuto), c.direct, 10)
			s.exceedsMemory.Store(true)
			require.Equal(t, c.exceeds, s.policy())
			require.Equal(t, "content", read(t, s, stat(t, s, "shard")))
			listAll(t, s)
			require.Equal(t, c.fits, s.policy(), "7 bytes are less than this machine has")
		})
	}
	_, err := OpenDirect(root, nil, "maybe")
	require.EqualError(t, err, `direct reads "maybe" are unknown: use auto, on or off`)
}

func TestOnlyRequestedReadsBypassPageCache(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	for asked, direct := range map[Direct]Direct{DirectAuto: DirectOn, DirectOn: DirectOn, DirectOff: DirectOff} {
		s := openDirectly(t, root, openEngine(t, uring.ModeAuto), asked, 10)
		u, err := s.Uncached()
		require.NoError(t, err)
		require.Equal(t, direct, u.(*Storage).direct)
		require.Equal(t, "content", read(t, u.(*Storage), stat(t, s, "shard")))
		require.NoError(t, u.Close())
		require.Equal(t, "content", read(t, s, stat(t, s, "shard")))
	}
}
