package integration

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	lc0FrameBytes = 8356
	lc0PolicyAt   = 8
)

// lc0Game makes a game of frames of version 6.
func lc0Game(r *rand.Rand, frames int) []byte {
	var game []byte
	for range frames {
		f := make([]byte, lc0FrameBytes)
		binary.LittleEndian.PutUint32(f, 6)
		binary.LittleEndian.PutUint32(f[4:], 1) // the input format
		for i := range 1858 {
			binary.LittleEndian.PutUint32(f[lc0PolicyAt+4*i:], math.Float32bits(-1))
		}
		for range 20 {
			binary.LittleEndian.PutUint32(f[lc0PolicyAt+4*r.IntN(1858):], math.Float32bits(r.Float32()))
		}
		binary.LittleEndian.PutUint64(f[8000:], r.Uint64())
		game = append(game, f...)
	}
	return game
}

// lc0Games makes a directory of single games.
func lc0Games(t testing.TB, seed uint64) dataset {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 4))
	for i := range 12 {
		g := lc0Game(r, 1+r.IntN(9))
		packed := gzipMember(g)
		if i%3 == 0 { // several members are still one game
			packed = append(gzipMember(g[:5000]), gzipMember(g[5000:])...)
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, fmt.Sprint(i%2)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i%2), fmt.Sprintf("training.%d.gz", i)), packed, 0o644))
	}
	return dataset{name: "lc0", dir: dir, ext: ".bin"}
}

// lc0Tars makes tars of games. Some games between intact ones do not gunzip, or contain invalid
// frames.
func lc0Tars(t testing.TB, seed uint64) dataset {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 5))
	for i := range 4 {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		add := func(name string, data []byte) {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
			_, err := w.Write(data)
			require.NoError(t, err)
		}
		add("LICENSE", []byte("text"))
		for k := range 6 {
			g := lc0Game(r, 1+r.IntN(6))
			switch (i + k) % 6 {
			case 3: // a frame without a move, the first of its game
				clear(g[lc0PolicyAt : lc0PolicyAt+4*1858])
				for m := range 1858 {
					g[lc0PolicyAt+4*m+3] = 0xbf
				}
			case 4:
				g[len(g)-lc0FrameBytes] = 7 // another version, perhaps in the last frame
			}
			packed := gzipMember(g)
			if (i+k)%6 == 2 && k > 0 {
				packed[len(packed)-6] ^= 1
			}
			add(fmt.Sprintf("games/training.%d.%d.gz", i, k), packed)
		}
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("run-%d.tar", i)), b.Bytes(), 0o644))
	}
	return dataset{name: "lc0-tar", dir: dir, flags: []string{"--format", "lc0", "--on-corrupt", "skip", "--lc0-check"}, ext: ".bin"}
}

func TestExampleLc0ReturnsFramesOfGamesInBatches(t *testing.T) {
	interpreter := python(t, "numpy")
	for _, d := range []dataset{lc0Games(t, 3), lc0Tars(t, 3)} {
		s := usual()
		m := mountDataset(t, d, s)
		frames := m.read("worker-0.bin")
		out := string(output(t, interpreter, "../examples/lc0/batches.py", m.path("worker-0.bin"), "--batch", "7"))
		var want bytes.Buffer
		for ; len(frames) > 0; frames = frames[min(7*lc0FrameBytes, len(frames)):] {
			batch := frames[:min(7*lc0FrameBytes, len(frames))]
			bitsSet, policy := 0, 0.0
			for f := batch; len(f) > 0; f = f[lc0FrameBytes:] {
				for i := range 1858 {
					policy += max(0, float64(math.Float32frombits(binary.LittleEndian.Uint32(f[lc0PolicyAt+4*i:]))))
				}
				for i := range 104 {
					bitsSet += bits.OnesCount64(binary.LittleEndian.Uint64(f[lc0PolicyAt+4*1858+8*i:]))
				}
			}
			fmt.Fprintf(&want, "%d %d %.4f 0.0000\n", len(batch)/lc0FrameBytes, bitsSet, policy)
		}
		require.Equal(t, want.String(), out)
	}
}

func TestInspectShowsLc0GamesAndExcludedFrames(t *testing.T) {
	d := lc0Tars(t, *drawSeed)
	var shown struct {
		Format, Kind string
		Games        struct {
			Games  int
			Frames struct{ Min, Max int }
		}
		Reasons map[string]int `json:"damages_by_reason"`
	}
	args := append([]string{"inspect", d.dir, "--json"}, d.flags...)
	require.NoError(t, json.Unmarshal(toolOK(t, args...), &shown))
	require.Equal(t, "lc0", shown.Format)
	require.Equal(t, "version 6", shown.Kind)
	require.Positive(t, shown.Games.Games)
	require.Positive(t, shown.Reasons["the policy has no legal move"])
	require.Positive(t, shown.Reasons["the gzip member's checksum or size does not match its bytes"])

	m := mountDataset(t, d, usual())
	var described struct {
		Reasons map[string]int `json:"damages_by_reason"`
	}
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &described))
	require.Equal(t, shown.Reasons, described.Reasons)
	require.Contains(t, string(m.read("status")), "the policy has no legal move")
}

// Parts of games (whole games by default) equal the reference, share nothing and miss nothing.
func TestPartsOfGamesEqualReference(t *testing.T) {
	lc0Datasets(t, func(t *testing.T, d dataset) {
		ref := newReference(t, d)
		for i, by := range splitUnits {
			var parts [][]string
			for _, part := range []string{"0..0.4", "0.4..1"} {
				s := usual().part(part, by, 9)
				s.Shuffle = []string{"reservoir", "full", "block"}[i]
				m := mountDataset(t, d, s)
				for w := range s.Workers {
					requireFile(t, ref.data(s, w), m.path("worker-%d.bin", w))
					requireFile(t, ref.ask(question{settings: s, Worker: w, Kind: "ids"}), m.path("worker-%d.ids", w))
				}
				parts = append(parts, idsOfWorkers(m, s))
				require.NotEmpty(t, parts[len(parts)-1])
				m.end()
				if by == "unit" { // the default of --split-by
					of := usual()
					of.Shuffle = s.Shuffle
					m := mountDataset(t, d, of, "--split", part, "--split-seed", "9")
					requireFile(t, ref.data(s, 1), m.path("worker-1.bin"))
					m.end()
				}
			}
			requireTiles(t, ref.g(usual()), parts...)
		}
	})
}
