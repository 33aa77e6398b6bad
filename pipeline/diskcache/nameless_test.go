package diskcache

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestADiskThatIsTooSmallIsFoundAtTheStart(t *testing.T) {
	dir := readtest.DiskDir(t)
	_, err := reserveNameless(dir, 1<<20, 1<<19)
	require.ErrorContains(t, err, "needs 1048576 bytes, of which its directory")
	_, err = reserveNameless(dir, -1, 1<<60)
	require.ErrorContains(t, err, "reserve the spool")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestLackOfSpaceDuringAllocationIsReported(t *testing.T) {
	memory := memoryDir()
	if memory == "" {
		t.Skip("no tmpfs with a bound")
	}
	_, err := reserveNameless(memory, 1<<43, 1<<60)
	require.ErrorContains(t, err, "reserve the spool: the spool needs 8796093022208 bytes, of which its directory")
}

func memoryDir() string {
	const dir = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 {
		return ""
	}
	return dir
}

func TestLeftoversOfKilledProcessAreRemoved(t *testing.T) {
	dir := readtest.DiskDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tempName+"123"), []byte("left"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	a, err := openNameless(dir, 1<<20)
	require.NoError(t, err)
	b, err := openNameless(dir, 1<<20)
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "a living spool has no name, and what is not one stays")
	require.NoError(t, errors.Join(a.close(), b.close()))
}

func TestSpoolSpaceIsReservedOnceAndReturned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 64
		s := &nameless{bytes: pages * pageBytes, free: []extent{{0, pages * pageBytes}}}
		var held [][]extent
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				s.give(held[i])
				held = append(held[:i], held[i+1:]...)
			} else {
				n := rapid.Int64Range(0, pages*pageBytes/2).Draw(t, "bytes")
				room := s.bytes - s.used()
				runs, ok := s.takeExtents(n)
				require.Equal(t, roundToPages(n) <= room, ok, "there is no loss by fragments")
				if ok {
					held = append(held, runs)
				}
			}
			var taken [pages]bool
			sum := int64(0)
			for _, runs := range held {
				for _, r := range runs {
					sum += r.size
					for at := r.off; at < r.off+r.size; at += pageBytes {
						require.False(t, taken[at/pageBytes], "page %d is taken twice", at/pageBytes)
						taken[at/pageBytes] = true
					}
				}
			}
			require.Equal(t, sum, s.used())
		}
	})
}
