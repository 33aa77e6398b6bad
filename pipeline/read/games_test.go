package read_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/uring"
)

// games is a dataset of tars of games, some of which are damaged, and the frames of the others.
type games struct {
	dir  string
	want map[string]int
}

func makeGames(t *testing.T) games {
	g := games{t.TempDir(), map[string]int{}}
	r := rand.New(rand.NewPCG(3, 4))
	for shard := range 3 {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range 12 {
			frames := 1 + r.IntN(50)
			if i == 5 { // larger than what is decoded at once
				frames = 200
			}
			packed, all := gameOf(r, frames)
			switch {
			case i%4 == 2:
				packed[len(packed)-6] ^= 1
			case i%4 == 3:
				packed = packed[:len(packed)/2]
			default:
				for _, f := range all {
					g.want[f]++
				}
			}
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.gz", i), Mode: 0o644, Size: int64(len(packed))}))
			_, err := w.Write(packed)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(g.dir, fmt.Sprint(shard, ".tar")), b.Bytes(), 0o644))
	}
	return g
}

func gameOf(r *rand.Rand, n int) (packed []byte, frames []string) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range n {
		f := make([]byte, 8356)
		binary.LittleEndian.PutUint32(f, 6)
		for at := 100; at < len(f)-8; at += 500 {
			binary.LittleEndian.PutUint64(f[at:], r.Uint64())
		}
		_, _ = w.Write(f)
		frames = append(frames, string(f))
	}
	_ = w.Close()
	return b.Bytes(), frames
}

// open opens the dataset with a view of one worker.
func (g games) open(t *testing.T, shuffle spec.Shuffle) realDataset {
	t.Helper()
	o := spec.Default().Order
	o.Shuffle, o.SizeRecords, o.Lanes, o.ChunkBytes = shuffle, 100, 3, 64<<10
	return openReal(t, catalog.Config{Dataset: g.dir, Format: spec.Format{Name: "lc0"}, OnCorrupt: spec.CorruptSkip}, o, 1)
}

func TestIntactGameFramesAreReadOnceDespiteDamagedGames(t *testing.T) {
	g := makeGames(t)
	for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleFull} {
		for _, memory := range []int64{1 << 20, 16 << 20, 256 << 20} {
			t.Run(fmt.Sprint(shuffle, memory>>20), func(t *testing.T) {
				d := g.open(t, shuffle)
				got := map[string]int{}
				require.NoError(t, d.lendFirst(d.fetcher(t, memory), 0, d.view.Count(0), func(frame []byte) { got[string(frame)]++ }))
				require.Equal(t, len(g.want), len(got))
				for frame, n := range g.want {
					require.Equal(t, n, got[frame])
				}
			})
		}
	}
}

// A frame of a game in the spool is read alone, since in a full shuffle nothing else of the game is
// needed soon.
func TestFrameOfSpooledGameLoadsOnlyItself(t *testing.T) {
	g := games{t.TempDir(), map[string]int{}}
	r := rand.New(rand.NewPCG(5, 6))
	const shards, each, frames = 3, 40, 10
	for shard := range shards {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := range each {
			packed, all := gameOf(r, frames)
			for _, f := range all {
				g.want[f]++
			}
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.gz", i), Mode: 0o644, Size: int64(len(packed))}))
			_, err := w.Write(packed)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(g.dir, fmt.Sprint(shard, ".tar")), b.Bytes(), 0o644))
	}
	d := g.open(t, spec.ShuffleFull)
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s, err := read.NewSurvey(d.catalog, d.storage, read.Options{
		MemoryBytes: 6 << 20, ReadTimeout: 10 * time.Minute, PieceBytes: 16 << 10, PieceRecords: 32,
		Read: spec.ReadSpool, Order: d.order, Spool: read.SpoolOptions{Dir: readtest.DiskDir(t), Engine: engine},
	})
	require.NoError(t, err)
	f, err := s.NewFetcher()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	got := map[string]int{}
	require.NoError(t, d.lendFirst(f, 0, d.view.Count(0), func(frame []byte) { got[string(frame)]++ }))
	require.Equal(t, g.want, got)
	require.LessOrEqual(t, f.Stats().BytesRead, uint64(2*shards*each*frames*8356))
}

// Overwriting a tar in place, with the same size and time, is detected by what its games contain.
func TestReplacedGameIsAnError(t *testing.T) {
	for name, change := range map[string]func(raw []byte, c *catalog.Catalog) []byte{
		"a member of another size": func(raw []byte, c *catalog.Catalog) []byte {
			at := c.Part(0, c.Shard(0).DecodedBytes-1).RawBytes
			copy(raw[at+512:], make([]byte, 4000))
			return raw
		},
		"no member there": func(raw []byte, c *catalog.Catalog) []byte {
			return append(raw[:c.Part(0, 0).EndRawBytes:c.Part(0, 0).EndRawBytes], make([]byte, len(raw)-int(c.Part(0, 0).EndRawBytes))...)
		},
		"games in other places": func(raw []byte, c *catalog.Catalog) []byte {
			at := c.Part(0, 0).EndRawBytes
			return append(append([]byte(nil), raw[at:]...), raw[:at]...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := makeGames(t)
			d := g.open(t, spec.ShuffleNone)
			path := filepath.Join(g.dir, "0.tar")
			info, err := os.Stat(path)
			require.NoError(t, err)
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt(change(raw, d.catalog), 0)
			require.NoError(t, err)
			require.NoError(t, file.Close())
			require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))

			failed := d.lendFirst(d.fetcher(t, 1<<20), 0, d.catalog.Shard(0).Records, func(frame []byte) {
				require.NotZero(t, g.want[string(frame)], "a frame that is none")
			})
			require.ErrorContains(t, failed, "0.tar")
		})
	}
}
