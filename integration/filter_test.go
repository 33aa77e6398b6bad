package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scored returns games whose last frame has the result, by name, and what a rescorer makes of them.
// It leaves out games of one frame.
func scored(t *testing.T) (games, rescored map[string][]byte) {
	t.Helper()
	games, rescored = map[string][]byte{}, map[string][]byte{}
	r := rand.New(rand.NewPCG(7, 7))
	put := func(frame []byte, at int, v float32) { binary.LittleEndian.PutUint32(frame[at:], math.Float32bits(v)) }
	for i := range 60 {
		frames := 1 + r.IntN(4)
		game := lc0Game(r, frames)
		result := float32(i%3 - 1)
		put(game[(frames-1)*lc0FrameBytes:], 8284, result*0.95)
		name := fmt.Sprintf("training.%d.gz", i)
		games[name] = game
		if frames == 1 {
			continue
		}
		want := bytes.Clone(game)
		for f := range frames {
			v := result
			if (frames-1-f)%2 == 1 && v != 0 {
				v = -v
			}
			put(want[f*lc0FrameBytes:], 8308, v)
			put(want[f*lc0FrameBytes:], 8312, float32(1-math.Abs(float64(result))))
		}
		rescored[name] = want
	}
	return games, rescored
}

// gamesIn reads games back as any program does: files and tars of them, by their paths.
func gamesIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	games := map[string][]byte{}
	add := func(name string, r io.Reader) {
		z, err := gzip.NewReader(r)
		require.NoError(t, err, name)
		games[name], err = io.ReadAll(z)
		require.NoError(t, err, name)
	}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if !strings.HasSuffix(path, ".tar") {
			add(e.Name(), bytes.NewReader(b))
			return nil
		}
		for r := tar.NewReader(bytes.NewReader(b)); ; {
			h, err := r.Next()
			if err == io.EOF {
				return nil
			}
			require.NoError(t, err, path)
			add(h.Name, r)
		}
	}))
	return games
}

// The example rescores games in separate files and in tars, in both ways, and the result is a
// dataset. Run again, it does nothing; if there is a new shard, it processes only that.
func TestExampleFilterRescoresGamesInDirectoriesAndInProcesses(t *testing.T) {
	t.Parallel() // each run of the filter checks its files twice, a second apart
	interpreter := python(t)
	games, want := scored(t)
	rescore, err := filepath.Abs("../examples/filter/rescore.py")
	require.NoError(t, err)
	type counts struct {
		Filtered  int `json:"shards_filtered"`
		Unchanged int `json:"shards_unchanged"`
		UnitsIn   int `json:"units_in"`
		UnitsOut  int `json:"units_out"`
		Records   int `json:"records_out"`
	}
	for by, args := range map[string][]string{"dirs": {"--input={in}", "--output={out}"}, "process": nil} {
		for container, write := range map[string]func(dir string){
			"files": func(dir string) {
				for name, game := range games {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), gzipMember(game), 0o644))
				}
			},
			"tars": func(dir string) {
				var b [3]bytes.Buffer
				var w [3]*tar.Writer
				for i := range w {
					w[i] = tar.NewWriter(&b[i])
				}
				for name, game := range games {
					packed := gzipMember(game)
					n := len(packed) % 3
					require.NoError(t, w[n].WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(packed))}))
					_, err := w[n].Write(packed)
					require.NoError(t, err)
				}
				for i := range w {
					require.NoError(t, w[i].Close())
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.tar", i)), b[i].Bytes(), 0o644))
				}
			},
		} {
			t.Run(by+"/"+container, func(t *testing.T) {
				t.Parallel()
				src, dst := t.TempDir(), filepath.Join(t.TempDir(), "rescored")
				write(src)
				filter := func() (c counts) {
					t.Helper()
					all := append([]string{"filter", src, dst, "--by", by, "--json", "--", interpreter, rescore}, args...)
					require.NoError(t, json.Unmarshal(toolOK(t, all...), &c))
					return c
				}
				shards, err := os.ReadDir(src)
				require.NoError(t, err)
				frames := 0
				for _, game := range want {
					frames += len(game) / lc0FrameBytes
				}
				require.Equal(t, counts{Filtered: len(shards), UnitsIn: len(games), UnitsOut: len(want), Records: frames}, filter())
				require.Equal(t, want, gamesIn(t, dst))
				toolOK(t, "verify", dst, "--index-dir", t.TempDir())
				require.Equal(t, counts{Unchanged: len(shards)}, filter())

				require.NoError(t, os.WriteFile(filepath.Join(src, "training.999.gz"), gzipMember(games["training.5.gz"]), 0o644))
				c := filter()
				require.Equal(t, 1, c.Filtered)
				require.Equal(t, len(shards), c.Unchanged)
				require.Equal(t, want["training.5.gz"], gamesIn(t, dst)["training.999.gz"])
			})
		}
	}
}

// The manual's own commands: the filter in Python for its protocol, and the command line of lc0's
// rescorer, which is replaced by a program that takes the same arguments.
func TestManualFiltersRun(t *testing.T) {
	interpreter := python(t)
	page, err := os.ReadFile(filepath.Join(manualDir, "filter.md"))
	require.NoError(t, err)
	programs := blocks(string(page), "python")
	require.Len(t, programs, 1)
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "upper")
	require.NoError(t, os.WriteFile(filepath.Join(src, "a.txt"), []byte("one\ntwo"), 0o644))
	toolOK(t, "filter", src, dst, "--by", "process", "--", interpreter, "-c", programs[0])
	made, err := os.ReadFile(filepath.Join(dst, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "ONE\nTWO\n", string(made))

	var line string
	for _, block := range blocks(string(page), "") {
		if strings.Contains(block, "rescorer rescore") {
			line = strings.ReplaceAll(block, "\\\n", " ")
		}
	}
	games, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "rescorer"), []byte(`#!/bin/sh -e
test "$1 $4 $5" = "rescore --delete-files=false --syzygy-paths=/tb"
cp "${2#--input=}"/* "${3#--output=}"/
`), 0o755))
	packed := gzipMember(lc0Game(rand.New(rand.NewPCG(1, 1)), 3))
	require.NoError(t, os.WriteFile(filepath.Join(games, "training.1.gz"), packed, 0o644))
	rescored := filepath.Join(t.TempDir(), "rescored")
	line = strings.NewReplacer("lsiofs ", "", "/games", games, "/rescored", rescored, " --watch", "").Replace(line)
	shell(t, `PATH="$1:$PATH"; shift; exec "$@"`, append([]string{bin, lsiofs}, strings.Fields(line)...)...)
	made, err = os.ReadFile(filepath.Join(rescored, "training.1.gz"))
	require.NoError(t, err)
	require.Equal(t, packed, made)
}
