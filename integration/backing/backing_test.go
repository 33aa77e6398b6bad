package backing

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// mounted returns a file system over a directory with one file a of eight bytes.
func mounted(t *testing.T, o Options) (b *FileSystem, behind string) {
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	} else {
		f.Close()
	}
	behind = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(behind, "a"), []byte("original"), 0o644))
	return Mount(t, behind, o, serve.Environment(t.TempDir(), t.TempDir())), behind
}

func stat(t *testing.T, path string) *syscall.Stat_t {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t)
}

func TestOpenStallsUntilReleased(t *testing.T) {
	b, _ := mounted(t, Options{})
	b.Fail(Fault{Path: "a", Open: true, Do: Stall})
	opened := make(chan error)
	go func() {
		f, err := os.Open(filepath.Join(b.Dir, "a"))
		if err == nil {
			err = f.Close()
		}
		opened <- err
	}()
	b.WaitStalled(1)
	b.Fail()
	require.NoError(t, <-opened)
	require.Zero(t, b.Stalled())
}

func TestAttributesAreCachedAsOptionsSpecify(t *testing.T) {
	for kept, want := range map[time.Duration]int64{0: 6, time.Hour: 8} {
		b, behind := mounted(t, Options{Attributes: kept, ReadOnly: true})
		path := filepath.Join(b.Dir, "a")
		// Through a descriptor: the name is only kept for a second, and looking it up again also
		// returns attributes.
		f, err := os.Open(path)
		require.NoError(t, err)
		size := func() int64 {
			info, err := f.Stat()
			require.NoError(t, err)
			return info.Size()
		}
		require.Equal(t, int64(8), size())
		require.NoError(t, os.WriteFile(filepath.Join(behind, "a"), []byte("change"), 0o644))
		require.Equal(t, want, size(), "attributes kept for %v", kept)
		require.NoError(t, f.Close())
		require.ErrorIs(t, os.WriteFile(path, nil, 0), syscall.EROFS)
	}
}

func TestForgottenInodesGetNewNumbersIfConfigured(t *testing.T) {
	for _, anew := range []bool{false, true} {
		b, _ := mounted(t, Options{NewInodes: anew})
		path := filepath.Join(b.Dir, "a")
		before := stat(t, path).Ino
		require.Equal(t, before, stat(t, path).Ino)
		b.Forget("a")
		// The kernel tells the server a moment later. If the file is looked up before that, it is
		// known again under its old number.
		if anew {
			for deadline := time.Now().Add(limit); stat(t, path).Ino == before; b.Forget("a") {
				require.True(t, time.Now().Before(deadline), "it has its old number for ever")
				time.Sleep(time.Millisecond)
			}
		} else {
			require.Equal(t, before, stat(t, path).Ino)
		}
	}
}
