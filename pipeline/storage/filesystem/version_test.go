package filesystem

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Times are relative to a look at the file that took no time.
func TestFileIsUnstableWhileAnotherChangeCouldShareItsTime(t *testing.T) {
	local, remote := uring.Traits{}, uring.Traits{Remote: true}
	made := uring.Traits{Remote: true, NoChangeTimes: true}
	const fraction = 123456 * time.Microsecond // of a second, on the clock at the time of the look
	for name, c := range map[string]struct {
		on           uring.Traits
		mtime, ctime time.Duration
		young        bool
		wait         time.Duration
	}{
		"just written":                                  {local, -1, -1, true, 20 * time.Millisecond},
		"written a tick ago":                            {local, -20 * time.Millisecond, -20 * time.Millisecond, false, 0},
		"its time was set back just now":                {local, -time.Hour, -1, true, 20 * time.Millisecond},
		"its time was set to tomorrow, long ago":        {local, 24 * time.Hour, -time.Hour, false, 0},
		"written in this second, which is all there is": {local, -fraction, -fraction, true, 2 * time.Second},
		"written two seconds ago":                       {local, -fraction - 2*time.Second, -fraction - 2*time.Second, false, 0},
		"its time is of a whole second, no other is":    {local, -fraction, -time.Hour - 1, false, 0},
		"of a server whose clock may go after ours":     {remote, -50 * time.Second, -50 * time.Second, true, 20 * time.Millisecond},
		"of a server, old":                              {remote, -70 * time.Second, -70 * time.Second, false, 0},
		"of a server that makes ctime up":               {made, -70 * time.Second, -1, false, 0},
		"of one with whole seconds that does":           {made, -fraction - 50*time.Second, -1, true, 2 * time.Second},
		"on FAT":                                        {uring.Traits{Granule: 2 * time.Second, NoChangeTimes: true}, -fraction, 0, true, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_000_000_000, int64(fraction))
			a := Attributes{ModTimeNanos: now.Add(c.mtime).UnixNano(), ChangeTimeNanos: now.Add(c.ctime).UnixNano()}
			var systems Systems
			y := systems.Young()
			require.Equal(t, c.young, y.Add(&a, nil, c.on, now, now))
			require.Equal(t, c.wait, y.wait)
			require.False(t, y.Add(&a, &a, c.on, now, now), "when it was waited for, and nothing has come")
		})
	}
}

// By the clock of the same file system.
func TestPastTimeIsNotWaitedForAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	a, err := Stat(path)
	require.NoError(t, err)
	var systems Systems
	on := systems.Traits(unix.AT_FDCWD, path, a.Device)
	on.Remote = true // a minute of clock skew
	y, now := systems.Young(), time.Now()
	require.True(t, y.Add(&a, nil, on, now, now))
	last, err := y.Wait(t.Context())
	require.NoError(t, err)
	require.False(t, last)
	older, newer, other := a, a, a
	older.ModTimeNanos--
	older.ChangeTimeNanos--
	newer.ModTimeNanos++
	newer.ChangeTimeNanos++
	other.Device++
	require.False(t, y.Add(&older, nil, on, now, now))
	require.True(t, y.Add(&newer, nil, on, now, now))
	require.True(t, y.Add(&other, nil, on, now, now))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	y.wait = time.Hour
	_, err = y.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// Reads don't compare it either.
func TestUnstableAttributesAreExcludedFromVersion(t *testing.T) {
	a := Attributes{Inode: 7, SizeBytes: 3, ModTimeNanos: 11, ChangeTimeNanos: 13, Mode: unix.S_IFREG}
	require.Equal(t, storage.Version{ModTimeNanos: 11, ChangeTimeNanos: 13, Inode: 7}, a.Version(uring.Traits{}))
	require.Equal(t, storage.Version{ModTimeNanos: 11, ChangeTimeNanos: 13}, a.Version(uring.Traits{NewNumbers: true}))
	require.Equal(t, storage.Version{ModTimeNanos: 11, Inode: 7}, a.Version(uring.Traits{NoChangeTimes: true}))

	listed := storage.Object{SizeBytes: 3, Version: a.Version(uring.Traits{NewNumbers: true})}
	a.Inode, a.ChangeTimeNanos = 8, 14
	require.NoError(t, a.Check(listed))
	listed.Version.Inode = 7
	require.ErrorIs(t, a.Check(listed), storage.ErrChanged)
	listed.Version.Inode = 8
	require.NoError(t, a.Check(listed))
	a.NeverMet()
	require.ErrorIs(t, a.Check(listed), storage.ErrChanged)
}
