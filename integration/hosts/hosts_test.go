package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Mounts of others, whose server does not answer, come and go while machines start: those that were
// copied with a machine's namespace vanish from it when their directories are removed.
func TestMachinesStartWhileOtherMountsAppearAndVanish(t *testing.T) {
	Programs(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		Missing(t, err.Error())
	}
	dir := t.TempDir()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
				if err := comeAndGo(dir); err != nil {
					ended <- err
					return
				}
			}
		}
	}()
	defer func() {
		close(stop)
		require.NoError(t, <-ended)
	}()
	for i := range 6 {
		h := Start(t, t.TempDir(), fmt.Sprintf("h%d", i), "true")
		left, err := h.Try(nil, "awk", `$3 ~ /^fuse/ && $2 ~ "^`+dir+`"`, "/proc/self/mounts")
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// comeAndGo makes mounts, and removes them and their directories.
func comeAndGo(dir string) error {
	const mounts = 5
	for i := range mounts {
		point := filepath.Join(dir, fmt.Sprintf("mount %d", i))
		if err := os.Mkdir(point, 0o700); err != nil {
			return err
		}
		fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = unix.Mount("nobody", point, "fuse.nobody", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
		if err == nil {
			defer unix.Unmount(point, unix.MNT_DETACH) // for those that are left after a failure
		}
		err = errors.Join(err, fuse.Close())
		if err != nil {
			return err
		}
	}
	time.Sleep(time.Millisecond)
	for i := range mounts {
		point := filepath.Join(dir, fmt.Sprintf("mount %d", i))
		if err := errors.Join(unix.Unmount(point, unix.MNT_DETACH), os.Remove(point)); err != nil {
			return err
		}
	}
	return nil
}
