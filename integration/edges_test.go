package integration

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// first returns a shard with only the first record of a format.
func first(f format, r *rand.Rand) shard {
	s := f.make(r, 0)
	end := s.ends[0]
	switch f.name {
	case "npy":
		s.bytes = regexp.MustCompile(`\(\d\d, 3\)`).ReplaceAll(s.bytes, []byte("(1 , 3)"))
	case "fixed":
		end = 96
	case "fixed-overlapping":
		end = 40 + 96
	}
	return shard{bytes: s.bytes[:end], ends: []int{end}}
}

// smallest calls f with a dataset of the given number of shards, each with one record, for every
// format: in nightly runs with every compression, otherwise with one each, in rotation. n counts
// the datasets. They are tested in parallel.
func smallest(t *testing.T, shards int, f func(t *testing.T, d dataset, n int)) {
	n := 0
	run := func(name string, makes func(t *testing.T) dataset) {
		number := n
		n++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, makes(t), number)
		})
	}
	for i, format := range formats {
		for j, c := range codecs {
			if j != i%len(codecs) && !serve.Runs(serve.Night) {
				continue
			}
			run(format.name+c.ext, func(t *testing.T) dataset {
				d := dataset{name: format.name, dir: t.TempDir(), flags: slices.Clone(format.flags), ext: format.ext}
				r := rand.New(rand.NewPCG(*drawSeed, 11))
				for i := range shards {
					writeFile(t, d.dir, fmt.Sprintf("%d%s%s", i, format.ext, c.ext), c.compress(r, first(format, r)))
				}
				return d
			})
		}
	}
	run("lc0", func(t *testing.T) dataset {
		d := dataset{name: "lc0", dir: t.TempDir(), flags: []string{"--format", "lc0"}, ext: ".bin"}
		r := rand.New(rand.NewPCG(*drawSeed, 12))
		for i := range shards {
			game := gzipMember(lc0Game(r, 1))
			if i%2 == 0 {
				writeFile(t, d.dir, fmt.Sprintf("training.%d.gz", i), game)
				continue
			}
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			require.NoError(t, w.WriteHeader(&tar.Header{Name: "training.gz", Mode: 0o644, Size: int64(len(game))}))
			_, err := w.Write(game)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			writeFile(t, d.dir, fmt.Sprintf("%d.tar", i), b.Bytes())
		}
		return d
	})
	run("files", func(t *testing.T) dataset {
		d := dataset{name: "files", dir: t.TempDir(), flags: []string{"--format", "files"}, ext: ".tar"}
		for i := range shards {
			writeFile(t, d.dir, fmt.Sprintf("%d/a.txt", i), fmt.Append(nil, i))
		}
		return d
	})
}

// One record, 32 lanes and more workers than records, with every shuffle: one worker has the
// record, the others have empty streams, and resuming before and after it is exact.
func TestDatasetOfOneRecordIsReadWithManyLanesAndWorkers(t *testing.T) {
	smallest(t, 1, func(t *testing.T, d dataset, n int) {
		ref := newReference(t, d)
		s := usual()
		s.Lanes, s.Workers, s.ShuffleSize = 32, 5, 16384
		s.Shuffle = []string{"reservoir", "none", "block", "full"}[n%4]
		s.Tail = []string{"keep", "pad", "drop"}[n%3]
		t.Logf("settings %+v", s)
		require.Len(t, ref.g(s), 1)
		requireMountEquals(t, d, ref, s, []int{0, 1, 2, 3, 4}, 1)
		requireCatEquals(t, d, ref, s, 0, 0)
	})
}

func TestShardsOfOneRecordEachEqualReference(t *testing.T) {
	smallest(t, 7, func(t *testing.T, d dataset, _ int) {
		ref := newReference(t, d)
		s := usual()
		require.Len(t, ref.g(s), 7)
		requireMountEquals(t, d, ref, s, []int{0, 1, 2}, 4)
		requireMountEquals(t, d, ref, s.part("0.3..1", "shard", 3), []int{0, 2}, 1)
	})
}

// An empty file is a shard without records if the format has no header and no trailer. In other
// formats it is damaged: refused by its name, or left out.
func TestEmptyShardsHaveNoRecordsOrAreRefusedOrSkipped(t *testing.T) {
	smallest(t, 3, func(t *testing.T, d dataset, _ int) {
		if d.name == "files" {
			t.Skip("a file of 0 bytes is a file like others, and a directory without files no shard")
		}
		all, err := os.ReadDir(d.dir)
		require.NoError(t, err)
		name := all[1].Name()
		require.NoError(t, os.Truncate(filepath.Join(d.dir, name), 0))
		headless := slices.Contains([]string{"lines", "jsonl", "tfrecord", "fixed", "fixed-overlapping"}, d.name)
		if !headless || !strings.HasSuffix(name, d.ext) { // or has a codec's extension
			refused := tool(t, append([]string{"index", d.dir}, d.flags...)...)
			require.Equal(t, exitDataset, refused.code)
			require.Contains(t, refused.stderr, name)
			require.Contains(t, refused.stderr, "the file is empty")
			d.flags = append(d.flags, "--on-corrupt", "skip")
		}
		var shown struct{ Shards, Records int }
		require.NoError(t, json.Unmarshal(toolOK(t, append([]string{"inspect", d.dir, "--json"}, d.flags...)...), &shown))
		require.Equal(t, 2, shown.Records)
		requireCatEquals(t, d, newReference(t, d), usual(), 0, 0)
	})
}

// One record that is larger than all of --memory, between small ones.
func TestRecordLargerThanMemoryIsRead(t *testing.T) {
	serve.Tier(t, serve.CI)
	const budget, large = 16 << 20, 20 << 20
	r := rand.New(rand.NewPCG(*drawSeed, 13))
	random := make([]byte, large)
	for i := range random {
		random[i] = 'a' + byte(r.Uint32()%16)
	}
	for _, c := range codecs {
		for _, read := range map[bool][]string{true: {"scan", "gather"}, false: {"scan", "spool"}}[c.ext == ""] {
			t.Run("lines"+c.ext+" by "+read, func(t *testing.T) {
				d := dataset{name: "lines", dir: t.TempDir(), flags: []string{"--format", "lines"}, ext: ".txt"}
				for i := range 3 {
					s := linesShard(r, i)
					if i == 1 {
						end := s.ends[len(s.ends)/2]
						s.bytes = bytes.Join([][]byte{s.bytes[:end], random, []byte("\n"), s.bytes[end:]}, nil)
						s.ends = []int{end, end + large + 1, len(s.bytes)}
					}
					writeFile(t, d.dir, fmt.Sprintf("%d.txt%s", i, c.ext), c.compress(r, s))
				}
				s := usual()
				m := mountDataset(t, d, s, "--memory", fmt.Sprint(budget), "--read", read)
				ref := newReference(t, d)
				for w := range s.Workers {
					requireFile(t, ref.data(s, w), m.path("worker-%d.txt", w))
				}
				m.requireAlive()
			})
		}
	}
}

func TestMillionEmptyLinesAreNotRecords(t *testing.T) {
	empty := bytes.Repeat([]byte("\n \r\n\t\n\n"), 250_000)
	for _, format := range []string{"jsonl", "lines"} {
		for _, c := range codecs {
			t.Run(format+c.ext, func(t *testing.T) {
				f := formatNamed(format)
				d := dataset{dir: t.TempDir(), flags: f.flags, ext: f.ext}
				write := func(content []byte) {
					r := rand.New(rand.NewPCG(1, 1))
					writeFile(t, d.dir, "a"+f.ext+c.ext, c.compress(r, shard{bytes: content, ends: []int{1000, 3000, len(content)}}))
				}
				write(empty)
				refused := tool(t, append([]string{"index", d.dir}, d.flags...)...)
				require.Equal(t, exitDataset, refused.code)
				require.Contains(t, refused.stderr, "holds no records")
				write(bytes.Join([][]byte{empty, []byte("{\"a\": 1}\n"), empty, []byte("{}")}, nil))
				args := append([]string{"cat", d.dir, "--worker", "0/1", "--shuffle", "none"}, d.flags...)
				require.Equal(t, "{\"a\": 1}\n{}\n", string(toolOK(t, args...)))
			})
		}
	}
}

func TestTarOfOnlyDirectoriesHasNoRecords(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 3000 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("d%d.x/", i), Typeflag: tar.TypeDir, Mode: 0o755}))
	}
	require.NoError(t, w.Close())
	for _, c := range codecs {
		t.Run("tar"+c.ext, func(t *testing.T) {
			d := dataset{dir: t.TempDir(), ext: ".tar"}
			r := rand.New(rand.NewPCG(1, 2))
			writeFile(t, d.dir, "a.tar"+c.ext, c.compress(r, shard{bytes: b.Bytes(), ends: []int{b.Len()}}))
			refused := tool(t, "index", d.dir)
			require.Equal(t, exitDataset, refused.code)
			require.Contains(t, refused.stderr, "holds no records in 1 file of format tar")
			// Next to shards with samples it is a shard like others.
			writeFile(t, d.dir, "b.tar", tarShard(r, 0).bytes)
			requireCatEquals(t, d, newReference(t, d), usual(), 0, 0)
			var shown struct{ Shards, Records int }
			require.NoError(t, json.Unmarshal(toolOK(t, "inspect", d.dir, "--json"), &shown))
			require.Equal(t, 2, shown.Shards)
		})
	}
}
