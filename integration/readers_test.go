package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func TestOneReaderAfterTheOtherWorks(t *testing.T) {
	d := big(t)
	s := bigSettings()
	s.Workers = 8
	ref := newReference(t, d)
	m := mountDataset(t, d, s, "--memory", "1MiB")
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.bin", w))
	}
}

func TestAReaderThatStopsForEverBlocksNobody(t *testing.T) {
	d := big(t)
	s := bigSettings()
	ref := newReference(t, d)
	m := mountDataset(t, d, s, "--memory", "1MiB")
	stopped, err := os.Open(m.path("worker-0.bin"))
	require.NoError(t, err)
	defer stopped.Close()
	_, err = io.ReadFull(stopped, make([]byte, 50_000))
	require.NoError(t, err)
	for w := 1; w < s.Workers; w++ {
		requireFile(t, ref.data(s, w), m.path("worker-%d.bin", w))
	}
	rest, err := io.ReadAll(stopped)
	require.NoError(t, err)
	requireSameBytes(t, ref.data(s, 0)[50_000:], rest, "the reader goes on when it likes")
}

func TestSixtyFourFilesOpenAtOnceWithLittleMemory(t *testing.T) {
	d := big(t)
	s := bigSettings()
	s.Workers = 64
	ref := newReference(t, d)
	want := make([][]byte, s.Workers)
	for w := range want {
		want[w] = ref.data(s, w)
	}
	m := mountDataset(t, d, s, "--memory", "1MiB")
	var files []*os.File
	for w := range s.Workers {
		f, err := os.Open(m.path("worker-%d.bin", w))
		require.NoError(t, err)
		defer f.Close()
		files = append(files, f)
	}
	// Half of them take turns, the other half read all at once.
	turns := len(want[0]) / 8192
	for turn := range turns {
		for w := range 32 {
			off := turn * 8192
			buf := make([]byte, min(8192, len(want[w])-off))
			_, err := files[w].ReadAt(buf, int64(off))
			require.NoError(t, err)
			requireSameBytes(t, want[w][off:off+len(buf)], buf, "worker %d at %d", w, off)
		}
	}
	var group sync.WaitGroup
	got := make([][]byte, s.Workers)
	errs := make([]error, s.Workers)
	for w := 32; w < s.Workers; w++ {
		group.Go(func() { got[w], errs[w] = io.ReadAll(files[w]) })
	}
	group.Wait()
	for w := 32; w < s.Workers; w++ {
		require.NoError(t, errs[w])
		requireSameBytes(t, want[w], got[w], "worker %d", w)
	}
}

// large returns a compressed dataset with one member per shard, each larger than the smallest
// budget: the hardest case for jumps.
func large(t testing.TB, compress func([]byte) []byte, ext string) dataset {
	t.Helper()
	r := rand.New(rand.NewPCG(*drawSeed, 6))
	d := dataset{dir: t.TempDir(), ext: ".jsonl"}
	text := make([]byte, 400)
	for shard := range 3 {
		var b []byte
		for i := range 2500 {
			for j := range text {
				text[j] = "abcdefgh"[r.IntN(8)]
			}
			b = fmt.Appendf(b, `{"shard":%d,"i":%d,"text":"%s"}`+"\n", shard, i, text[:r.IntN(len(text))])
		}
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("s-%d.jsonl%s", shard, ext)), compress(b), 0o644))
	}
	return d
}

func TestManyRandomReadersGetCorrectBytesWithLittleMemory(t *testing.T) {
	for name, d := range map[string]dataset{
		"gz":  large(t, gzipMember, ".gz"),
		"zst": large(t, func(b []byte) []byte { return zstdFrame(b, false) }, ".zst"),
		"lz4": large(t, func(b []byte) []byte { return lz4Frame(b, lz4.Block256Kb, true) }, ".lz4"),
	} {
		t.Run(name, func(t *testing.T) {
			s := usual()
			s.ShuffleSize, s.ChunkBytes, s.ChunkRecords, s.Workers = 2000, 32<<10, 64, 2
			ref := newReference(t, d)
			m := mountDataset(t, d, s, "--memory", "1MiB")
			type file struct {
				path string
				want []byte
			}
			var files []file
			for epoch := range uint64(2) {
				s.Epoch = epoch
				for w := range s.Workers {
					for _, kind := range kinds {
						files = append(files, file{
							m.path("epoch-%d/worker-%d-of-2%s", epoch, w, kind.ext(d)),
							ref.ask(question{settings: s, Worker: w, Kind: kind.name}),
						})
					}
				}
			}
			var group errgroup.Group
			for reader := range uint64(6) {
				group.Go(func() error { return readAtRandom(files[reader%2*6].path, files[reader%2*6].want, reader) })
			}
			for i, f := range files {
				group.Go(func() error { return readAtRandom(f.path, f.want, 100+uint64(i)) })
			}
			require.NoError(t, group.Wait())
		})
	}
}

// readAtRandom reads runs of a file from random positions.
func readAtRandom(path string, want []byte, seed uint64) error {
	r := rand.New(rand.NewPCG(*drawSeed, seed))
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for range 2 {
		off := r.IntN(len(want))
		buf := make([]byte, 1+r.IntN(60_000))
		for range 3 {
			n, err := f.ReadAt(buf, int64(off))
			if err != nil && (err != io.EOF || off+n != len(want)) {
				return fmt.Errorf("%s at %d: %w", path, off, err)
			}
			if !bytes.Equal(buf[:n], want[off:off+n]) {
				return fmt.Errorf("%s: wrong bytes in [%d, %d); seed %d", path, off, off+n, *drawSeed)
			}
			if off += n; off == len(want) {
				break
			}
		}
	}
	return nil
}
