package diskcache

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/uring"
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

// decodedBytes returns the contents of a shard: every page differs.
func decodedBytes(shard int, size int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(shard), uint64(size)))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// fillDecoded writes a shard in blocks of 16 pages.
func fillDecoded(t testing.TB, d *Decoded, content []byte) {
	for at := 0; at < len(content); at += 16 * pageBytes {
		require.NoError(t, d.Write(content[at:min(at+16*pageBytes, len(content))]))
	}
	require.NoError(t, d.Finish())
}

// readDecoded reads ranges of a shard, one after the other.
func readDecoded(d *Decoded, ranges [][2]int64) ([]byte, error) {
	n := int64(0)
	for _, r := range ranges {
		n += r[1]
	}
	memory, done := make([]byte, n), make(chan error)
	d.Read(Reading{Memory: memory, Done: func(err error) { done <- err }, Ranges: func(yield func(off, size int64) bool) {
		for _, r := range ranges {
			if !yield(r[0], r[1]) {
				return
			}
		}
	}})
	return memory, <-done
}

func newSpool(t *testing.T, capacity, tables int64) *Shelf {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	s, err := NewSpool(readtest.DiskDir(t), capacity, tables, engine, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, engine.Close())
	})
	return s
}

// Shards consist of several extents, with and without their sums in memory, and any ranges of them
// come back as they were written.
func TestDecodedDataIsReadBackInAnyRanges(t *testing.T) {
	for _, tables := range []int64{0, 500, 1 << 20} {
		t.Run(fmt.Sprint(tables, " bytes of sums"), func(t *testing.T) {
			s := newSpool(t, 6<<20, tables)
			var shards []*Decoded
			var want [][]byte
			rng := rand.New(rand.NewPCG(1, uint64(tables)))
			for shard := range 30 {
				if len(shards) > 3 { // leaves a hole
					i := rng.IntN(len(shards))
					shards[i].Leave(Remove)
					shards, want = slices.Delete(shards, i, i+1), slices.Delete(want, i, i+1)
				}
				content := decodedBytes(shard, 1+rng.Int64N(3<<19))
				d, ok := s.Take(shard, int64(len(content)))
				if !ok {
					continue
				}
				state, err := d.Open()
				require.NoError(t, err)
				require.Equal(t, Ours, state)
				fillDecoded(t, d, content)
				shards, want = append(shards, d), append(want, content)
			}
			rapid.Check(t, func(t *rapid.T) {
				i := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
				var ranges [][2]int64
				var expected []byte
				for range rapid.IntRange(0, 3).Draw(t, "ranges") {
					off := rapid.Int64Range(0, int64(len(want[i]))).Draw(t, "off")
					n := rapid.Int64Range(0, int64(len(want[i]))-off).Draw(t, "size")
					if rapid.Bool().Draw(t, "small") {
						n = min(n, 5000)
					}
					ranges = append(ranges, [2]int64{off, n})
					expected = append(expected, want[i][off:off+n]...)
				}
				got, err := readDecoded(shards[i], ranges)
				require.NoError(t, err)
				require.True(t, bytes.Equal(expected, got))
			})
			used := int64(0)
			for _, d := range shards {
				used += RoomBytes(d.sizeBytes)
			}
			require.Equal(t, used, s.UsedBytes())
			require.LessOrEqual(t, s.TableBytes(), tables)
			for _, d := range shards {
				d.Leave(Remove)
			}
			require.Zero(t, s.UsedBytes())
			require.Zero(t, s.TableBytes())
		})
	}
}

func TestAlteredDecodedPageIsAnError(t *testing.T) {
	for _, tables := range []int64{0, 1 << 20} {
		s := newSpool(t, 2<<20, tables)
		content := decodedBytes(1, 1<<20+77)
		d, ok := s.Take(1, int64(len(content)))
		require.True(t, ok)
		fillDecoded(t, d, content)
		for _, off := range []int64{0, 5000, 300_000, int64(len(content)) - 1} {
			d.EachPlace(off, 1, func(fd int, at, _ int64) {
				_, err := unix.Pwrite(fd, []byte{content[off] ^ 1}, at)
				require.NoError(t, err)
			})
			for _, r := range [][2]int64{{off, 1}, {0, int64(len(content))}, {max(off-9000, 0), min(9001, off+1)}} {
				_, err := readDecoded(d, [][2]int64{r})
				require.ErrorContains(t, err, "are others than were written")
			}
			d.EachPlace(off, 1, func(fd int, at, _ int64) {
				_, err := unix.Pwrite(fd, content[off:off+1], at)
				require.NoError(t, err)
			})
		}
		_, err := readDecoded(d, [][2]int64{{0, int64(len(content))}})
		require.NoError(t, err)
		d.Leave(Remove)
	}
}

// A page of another shard, or another page, in a page's place is detected.
func TestMisplacedDecodedPageIsDetected(t *testing.T) {
	s := newSpool(t, 2<<20, 0)
	var shards []*Decoded
	for shard := range 2 {
		d, ok := s.Take(shard, 8*pageBytes)
		require.True(t, ok)
		fillDecoded(t, d, bytes.Repeat(decodedBytes(0, pageBytes), 8)) // the same in both
		shards = append(shards, d)
	}
	sumsAt := func(d *Decoded, page int64) []byte {
		sums := make([]byte, sumBytes)
		require.NoError(t, d.ground.readSums(run{page, page + 1}, sums))
		return sums
	}
	require.NotEqual(t, sumsAt(shards[0], 0), sumsAt(shards[0], 1))
	require.NotEqual(t, sumsAt(shards[0], 0), sumsAt(shards[1], 0))
	require.NoError(t, shards[0].ground.writeSums(run{0, 1}, sumsAt(shards[1], 0)))
	_, err := readDecoded(shards[0], [][2]int64{{0, 1}})
	require.ErrorContains(t, err, "others than were written")
}

func TestDecoderWritingTooMuchIsStopped(t *testing.T) {
	s := newSpool(t, 1<<20, 0)
	d, ok := s.Take(0, 5000)
	require.True(t, ok)
	require.ErrorContains(t, d.Write(make([]byte, 5001)), "a defect")
	require.NoError(t, d.Write(make([]byte, 5000)))
	require.ErrorContains(t, d.Write(make([]byte, 1)), "a defect")
}
