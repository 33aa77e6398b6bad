package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
)

func TestADiskThatIsTooSmallIsFoundAtTheStart(t *testing.T) {
	dir := fetchtest.DiskDir(t)
	_, err := reserveFile(dir, 1<<20, 1<<19)
	require.ErrorContains(t, err, "needs 1048576 bytes, of which its directory")
	_, err = reserveFile(dir, -1, 1<<60)
	require.ErrorContains(t, err, "reserve the spool")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestSpaceThatIsNotThereWhenItComesToItIsTooLittle(t *testing.T) {
	memory := memoryDir()
	if memory == "" {
		t.Skip("no tmpfs with a bound")
	}
	_, err := reserveFile(memory, 1<<43, 1<<60)
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

func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	dir := fetchtest.DiskDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, tempName+"123"), []byte("left"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	a, err := OpenFile(dir, 1<<20)
	require.NoError(t, err)
	b, err := OpenFile(dir, 1<<20)
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "a living spool has no name, and what is not one stays")
	require.NoError(t, a.Write([]Run{{0, 4096}}, 0, []byte("one")))
	require.NoError(t, b.Write([]Run{{0, 4096}}, 0, []byte("two")))
	require.NoError(t, errors.Join(a.Close(), b.Close()))
}

func TestRoomInASpoolFileIsGivenOnceAndComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 64
		s := &File{CapacityBytes: pages * budget.PageBytes, free: []Run{{0, pages * budget.PageBytes}}}
		var held [][]Run
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				s.Give(held[i])
				held = append(held[:i], held[i+1:]...)
			} else {
				n := rapid.Int64Range(0, pages*budget.PageBytes/2).Draw(t, "bytes")
				room := s.CapacityBytes - s.Used()
				runs, ok := s.Take(n)
				require.Equal(t, Round(n) <= room, ok, "there is no loss by fragments")
				if ok {
					held = append(held, runs)
				}
			}
			var taken [pages]bool
			sum := int64(0)
			for _, runs := range held {
				for _, r := range runs {
					sum += r.size
					for at := r.off; at < r.off+r.size; at += budget.PageBytes {
						require.False(t, taken[at/budget.PageBytes], "page %d is taken twice", at/budget.PageBytes)
						taken[at/budget.PageBytes] = true
					}
				}
			}
			require.Equal(t, sum, s.Used())
		}
	})
}
