package integration

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// The tests of scale assert what does not depend on the machine: sizes, memory, and what is reused.
// They log the times that README quotes:
//
//	go test ./integration -run 'Scale' -v -scale 100000000
var scale = flag.Int("scale", 1_000_000, "records of the datasets whose scale is tested")

// largeDataset is a dataset of -scale records that is cheap to make: sparse files, or copies of one
// shard. Tars have a tenth of -scale, because each record takes a kilobyte of disk.
type largeDataset struct {
	dataset
	records     int
	shards      int
	recordBytes int // upper bound of the index's size per record, plus 32 bytes per chunk
}

func largeDatasets() map[string]func(t *testing.T) largeDataset {
	return map[string]func(t *testing.T) largeDataset{
		"fixed": func(t *testing.T) largeDataset {
			d := dataset{dir: t.TempDir(), flags: []string{"--format", "fixed", "--record-bytes", "8"}, ext: ".bin"}
			const shards = 100
			for i := range shards {
				path := filepath.Join(d.dir, fmt.Sprintf("%03d.bin", i))
				require.NoError(t, os.WriteFile(path, nil, 0o644))
				require.NoError(t, os.Truncate(path, int64(*scale/shards*8)))
			}
			return largeDataset{d, *scale / shards * shards, shards, 6}
		},
		"lines": func(t *testing.T) largeDataset {
			const lines = 100_000
			var b bytes.Buffer
			for i := range lines {
				b.WriteString(strings.Repeat("x", 1+i*7919%61))
				b.WriteByte('\n')
			}
			return copiesOf(t, b.Bytes(), ".txt", *scale/lines, lines, 6)
		},
		"tar": func(t *testing.T) largeDataset {
			const samples = 20_000
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for i := range samples {
				require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%06d.x", i), Mode: 0o644, Size: int64(i * 7919 % 700), Format: tar.FormatUSTAR}))
				_, err := w.Write(make([]byte, i*7919%700))
				require.NoError(t, err)
			}
			require.NoError(t, w.Close())
			return copiesOf(t, b.Bytes(), ".tar", *scale/10/samples, samples, 14)
		},
	}
}

// copiesOf returns a dataset of copies of one shard, at least one.
func copiesOf(t *testing.T, shard []byte, ext string, shards, records, recordBytes int) largeDataset {
	d := dataset{dir: t.TempDir(), ext: ext}
	shards = max(1, shards)
	for i := range shards {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("s%05d%s", i, ext)), shard, 0o644))
	}
	return largeDataset{d, shards * records, shards, recordBytes}
}

// memoryAtScale returns the memory allowed for a mount of that many records.
func memoryAtScale(records int) int {
	if records > 10_000_000 {
		return 1000 << 20
	}
	return 300 << 20
}

func milliseconds(since time.Time) int64 { return time.Since(since).Milliseconds() }

func TestScaleOfAMount(t *testing.T) {
	serve.Tier(t, serve.CI)
	for name, build := range largeDatasets() {
		t.Run(name, func(t *testing.T) {
			d := build(t)
			dir := t.TempDir()
			began := time.Now()
			require.Equal(t, d.records, index(t, d.dataset, "--index-dir", dir).Records)
			took := milliseconds(began)
			files, err := filepath.Glob(filepath.Join(dir, "*.index"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			info, err := os.Stat(files[0])
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), int64(d.recordBytes*d.records+32*(d.records/128+d.shards)))
			t.Logf("%d records: indexed in %d ms, %.2f bytes a record", d.records, took, float64(info.Size())/float64(d.records))
			for _, shuffle := range []string{"reservoir", "full"} {
				t.Run(shuffle, func(t *testing.T) { mountAtScale(t, d, dir, shuffle) })
			}
		})
	}
}

// mountAtScale mounts from the stored index twice. The second time the sizes of the streams are
// stored, too.
func mountAtScale(t *testing.T, d largeDataset, indexDir, shuffle string) {
	var sizes [2][]int64
	var stored [2]os.FileInfo
	for run := range 2 {
		began := time.Now()
		m := mountAt(t, d.dataset, t.TempDir(), "--index-dir", indexDir, "--workers", "4", "--shuffle", shuffle)
		mounted := milliseconds(began)
		for w := range 4 {
			info, err := os.Stat(m.path("worker-%d%s", w, d.ext))
			require.NoError(t, err)
			sizes[run] = append(sizes[run], info.Size())
		}
		ready := milliseconds(began)
		memory := heldBy(t, m.cmd.Process.Pid)
		t.Logf("run %d: mounted after %d ms, all sizes after %d ms, %d MiB", run+1, mounted, ready, memory>>20)
		if !raceBuilt { // the race detector takes memory of its own
			require.Less(t, memory, memoryAtScale(d.records))
		}
		m.end() // this stores what was computed
		files, err := filepath.Glob(filepath.Join(indexDir, "*.layout"))
		require.NoError(t, err)
		stored[run], err = os.Stat(newest(t, files))
		require.NoError(t, err)
	}
	require.Equal(t, sizes[0], sizes[1])
	require.True(t, os.SameFile(stored[0], stored[1]), "the second mount used what the first one stored")
}

// newest returns the file that was written or used last.
func newest(t *testing.T, files []string) string {
	t.Helper()
	var last string
	var at time.Time
	for _, f := range files {
		info, err := os.Stat(f)
		require.NoError(t, err)
		if info.ModTime().After(at) {
			last, at = f, info.ModTime()
		}
	}
	require.NotEmpty(t, last)
	return last
}

// TestScaleOfAResume resumes in the middle of an epoch, with and without what earlier runs have
// stored about its order.
func TestScaleOfAResume(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := largeDatasets()["lines"](t)
	dir := t.TempDir()
	m := mountAt(t, d.dataset, t.TempDir(), "--index-dir", dir, "--workers", "4")
	for w := range 4 {
		readHalf(t, m.path("worker-%d.txt", w))
	}
	ckpt := filepath.Join(t.TempDir(), "ckpt.json")
	output(t, "cp", m.path("checkpoint"), ckpt)
	m.end()
	var state struct {
		Done []struct{ Consumed []int }
	}
	b, err := os.ReadFile(ckpt)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &state))
	require.Len(t, state.Done, 1)
	for _, n := range state.Done[0].Consumed {
		require.InDelta(t, d.records/8, n, float64(d.records)/100, "half of each file")
	}

	var first []byte
	for _, what := range []string{"stored in part", "stored", "stored", "computed", "computed"} {
		if what == "computed" {
			for _, ending := range []string{"layout", "states"} {
				files, err := filepath.Glob(filepath.Join(dir, "*."+ending))
				require.NoError(t, err)
				for _, f := range files {
					require.NoError(t, os.Remove(f))
				}
			}
		}
		began := time.Now()
		m := mountAt(t, d.dataset, t.TempDir(), "--index-dir", dir, "--resume", ckpt)
		mounted := milliseconds(began)
		got := readStart(t, m.path("worker-2.txt"))
		t.Logf("resumed in the middle of %d records, order %s: mounted after %d ms, first bytes after %d ms", d.records, what, mounted, milliseconds(began))
		m.end()
		if first == nil {
			first = got
		}
		require.Equal(t, first, got)
	}
}

// readHalf reads a file at the start and in the middle.
func readHalf(t *testing.T, path string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	for _, at := range []int64{0, info.Size() / 2} {
		_, err = f.ReadAt(make([]byte, 4096), at)
		require.NoError(t, err)
	}
}

func readStart(t *testing.T, path string) []byte {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 4096)
	_, err = f.ReadAt(b, 0)
	require.NoError(t, err)
	return b
}

// TestScaleOfManyShards mounts thousands of small shards, of which only a bounded number is kept
// open.
func TestScaleOfManyShards(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := dataset{dir: t.TempDir(), ext: ".jsonl"}
	shards := *scale / 200
	for i := range shards {
		dir := filepath.Join(d.dir, fmt.Sprintf("d%04d", i/1000))
		path := filepath.Join(dir, fmt.Sprintf("s%07d.jsonl", i))
		if i%1000 == 0 {
			require.NoError(t, os.Mkdir(dir, 0o755))
		}
		require.NoError(t, os.WriteFile(path, []byte("{\"a\": 1}\n{\"b\": 22}\n"), 0o644))
	}
	dir := t.TempDir()
	for run := range 2 {
		began := time.Now()
		m := mountAt(t, d, t.TempDir(), "--index-dir", dir)
		mounted := milliseconds(began)
		info, err := os.Stat(m.path("worker-0.jsonl"))
		require.NoError(t, err)
		require.EqualValues(t, shards*(9+10), info.Size())
		readHalf(t, m.path("worker-0.jsonl"))
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid))
		require.NoError(t, err)
		require.Less(t, len(open), 600)
		t.Logf("run %d, %d shards: mounted after %d ms, first bytes after %d ms, %d descriptors, %d MiB",
			run+1, shards, mounted, milliseconds(began), len(open), heldBy(t, m.cmd.Process.Pid)>>20)
		m.end()
	}
}

// TestScaleOfAnIndexPass indexes samples of 12 KiB, of two members each, from the page cache, and
// logs the speed. There is one sample per hundred of -scale, so that 10⁷ take 1.25 GB of disk.
func TestScaleOfAnIndexPass(t *testing.T) {
	serve.Tier(t, serve.CI)
	const samples = 2000
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range samples {
		for _, m := range []struct {
			ending string
			bytes  int
		}{{"jpg", 11_000}, {"cls", 3}} {
			require.NoError(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%06d.%s", i, m.ending), Mode: 0o644, Size: int64(m.bytes), Format: tar.FormatUSTAR}))
			_, err := w.Write(make([]byte, m.bytes))
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	d := dataset{dir: t.TempDir(), ext: ".tar"}
	shards := max(1, *scale/100/samples)
	for i := range shards {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("s%04d.tar", i)), b.Bytes(), 0o644))
	}
	records := shards * samples
	for range 3 {
		cmd := exec.Command(lsiofs, "index", d.dir, "--index-dir", t.TempDir())
		cmd.Env = environment(t.TempDir())
		require.NoError(t, cmd.Run())
		used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
		t.Logf("%d samples of two members: %v of CPU, %.2f M members a second of a core", records, cpu.Round(time.Millisecond), 2*float64(records)/cpu.Seconds()/1e6)
	}
}
