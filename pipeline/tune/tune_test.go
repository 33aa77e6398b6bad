package tune

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func number(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

// quick returns the Config of a half-second measurement of little data.
func quick(path string) Config {
	c := Default(path)
	c.Duration = 500 * time.Millisecond
	c.ReadBytes = []int64{4 << 10, 64 << 10, 256 << 10}
	c.MinDataBytes, c.DataBytes, c.TempBytes = 4<<20, 16<<20, warmBytes
	return c
}

func writeFile(t *testing.T, path string, bytes int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	content := make([]byte, bytes) // incompressible
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.Write(content)
	require.NoError(t, err)
	require.NoError(t, f.Sync()) // the file has blocks only after this
	require.NoError(t, f.Close())
}

func TestFilesAreMeasured(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		writeFile(t, filepath.Join(dir, "sub", strconv.Itoa(i)+".tar"), 1<<20+i)
	}
	c := quick(dir)
	var stages []string
	c.Progress = func(p Progress) {
		require.GreaterOrEqual(t, p.Done, 0.0)
		require.LessOrEqual(t, p.Done, 1.0)
		if n := len(stages); n == 0 || stages[n-1] != p.Stage {
			stages = append(stages, p.Stage)
		}
	}
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, r.Profile.Validate())
	place, err := filesystem.Look(dir)
	require.NoError(t, err)
	require.Equal(t, place, r.Place)
	require.Equal(t, place.Kind, r.Profile.Kind)
	require.False(t, r.Profile.Tuned.IsZero())
	require.Len(t, r.Cells, 3*len(c.Depths))
	for _, cell := range r.Cells {
		require.Positive(t, cell.BytesPerSecond)
	}
	require.Len(t, r.Reasons, 4)
	require.Contains(t, r.Data, "of 5 files")
	require.Equal(t, []string{"warming up", "measuring"}, stages)
	require.GreaterOrEqual(t, r.Rounds, 1)
}

func entries(t *testing.T, dir string) []os.DirEntry {
	e, err := os.ReadDir(dir)
	require.NoError(t, err)
	return e
}

func TestTemporaryFileIsMeasuredAndDeleted(t *testing.T) {
	dir := t.TempDir()
	c := quick(dir)
	written := false
	c.Progress = func(p Progress) {
		written = written || p.Stage == "writing"
		require.Empty(t, entries(t, dir), "it has no name from the start, so that nothing can be left of it")
	}
	r, err := Run(t.Context(), c)
	require.NoError(t, err)
	require.True(t, written)
	require.Contains(t, r.Data, "a temporary file of 8.0 MiB")
	require.Empty(t, entries(t, dir))
}

// A measurement that is cancelled, at any time, ends with the context's error and leaves nothing
// behind: no file, no descriptor, no goroutine.
func TestCancelLeavesNothing(t *testing.T) {
	for _, stage := range []string{"writing", "warming up", "measuring"} {
		t.Run(stage, func(t *testing.T) {
			dir := t.TempDir()
			before := descriptors(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := quick(dir)
			c.Progress = func(p Progress) {
				if p.Stage == stage {
					cancel()
				}
			}
			_, err := Run(ctx, c)
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, entries(t, dir))
			require.Equal(t, before, descriptors(t))
		})
	}
}

// descriptors returns the number of open files and directories, by their targets.
func descriptors(t *testing.T) int {
	n := 0
	for _, e := range entries(t, "/proc/self/fd") {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && filepath.IsAbs(target) && filepath.Dir(target) != "/proc" {
			n++
		}
	}
	return n
}

func TestUnmeasurableTargetsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"no time", func(c *Config) { c.Duration = 0 }, "duration (0s) must be above 0"},
		{"no sizes", func(c *Config) { c.ReadBytes = nil }, "nothing to measure"},
		{"no depths", func(c *Config) { c.Depths = nil }, "nothing to measure"},
		{"a size that is not aligned", func(c *Config) { c.ReadBytes = []int64{5000} }, "reads of 5000 bytes"},
		{"a depth of none", func(c *Config) { c.Depths = []int{0} }, "depth (0)"},
		{"too small a file", func(c *Config) { c.TempBytes = 1 << 20 }, "temporary file (1048576 bytes)"},
		{"a path that is missing", func(c *Config) { c.Path = filepath.Join(dir, "x") }, "no such file"},
		{"more than the disk has", func(c *Config) { c.TempBytes = 1 << 60 }, "are needed"},
		{"a place that can't be written to", func(c *Config) { c.Path = "/proc/self/task" }, "less than 4.0 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := quick(dir)
			c.change(&config)
			_, err := Run(t.Context(), config)
			require.ErrorContains(t, err, c.says)
		})
	}
	require.Empty(t, entries(t, dir))
}

func TestWhichFilesAreMeasured(t *testing.T) {
	dir := t.TempDir()
	for name, bytes := range map[string]int{"a.tar": 9000, "sub/b.tar": 8192, "small.tar": 8191, ".hidden/c.tar": 9000, ".d.tar": 9000} {
		writeFile(t, filepath.Join(dir, name), bytes)
	}
	sparse := filepath.Join(dir, "sparse.tar")
	require.NoError(t, os.WriteFile(sparse, nil, 0o644))
	require.NoError(t, os.Truncate(sparse, 1<<20))
	require.NoError(t, os.Symlink(filepath.Join(dir, "a.tar"), filepath.Join(dir, "link.tar")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	files, at, err := listFiles(t.Context(), dir, 8192)
	require.NoError(t, err)
	require.Equal(t, dir, at)
	require.ElementsMatch(t, []listed{{filepath.Join(dir, "a.tar"), 9000}, {filepath.Join(dir, "sub/b.tar"), 8192}}, files)

	files, at, err = listFiles(t.Context(), filepath.Join(dir, "a.tar"), 8192)
	require.NoError(t, err)
	require.Equal(t, dir, at)
	require.Len(t, files, 1)
}

func TestSomeFilesAndAllDisksAreRead(t *testing.T) {
	dir := t.TempDir()
	var files []listed
	for i := range 100 {
		path := filepath.Join(dir, strconv.Itoa(i))
		require.NoError(t, os.WriteFile(path, make([]byte, 64<<10), 0o644))
		files = append(files, listed{path, 64 << 10})
	}
	for _, c := range []struct {
		kind  storage.Kind
		most  int64
		bytes int64
	}{{storage.KindSSD, 1 << 20, 1 << 20}, {storage.KindSSD, 1 << 30, mostFiles * 64 << 10}, {storage.KindDisk, 1 << 20, mostFiles * 64 << 10}} {
		d, err := openFiles(files, 8<<10, c.most, c.kind)
		require.NoError(t, err)
		require.Len(t, d.regions, mostFiles)
		require.Equal(t, c.bytes, d.bytes)
		require.NoError(t, d.close())
	}
}

// Reads are within the data to be read, wherever it ends.
func TestReadsStayInsideData(t *testing.T) {
	dir := t.TempDir()
	var files []listed
	for i, n := range []int{1 << 20, 256 << 10, 300 << 10} {
		path := filepath.Join(dir, strconv.Itoa(i))
		writeFile(t, path, n)
		files = append(files, listed{path, int64(n)})
	}
	d, err := openFiles(files, 128<<10, 1<<30, storage.KindSSD)
	require.NoError(t, err)
	m, err := newMeter(d)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.close()); require.NoError(t, d.close()) }()
	m.keep(1, 128<<10, 128<<10)
	require.EqualValues(t, 1<<20+128<<10, d.bytes)
	seen := map[int]bool{}
	for range 1000 {
		f, off := m.place(128 << 10)
		for i, r := range d.regions {
			if r.file == f {
				seen[i] = true
				require.LessOrEqual(t, off+128<<10, r.bytes)
				require.Zero(t, off%blockBytes)
			}
		}
	}
	require.Equal(t, map[int]bool{0: true, 1: true}, seen)
	m.keep(1, 64<<10, 128<<10)
	require.EqualValues(t, 1<<20, d.bytes, "too little for a read is left out")
}

func TestShrinkingFileIsAnErrorNotAMeasurement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	writeFile(t, path, 1<<20)
	d, err := openFiles([]listed{{path, 1 << 20}}, 64<<10, 1<<30, storage.KindSSD)
	require.NoError(t, err)
	m, err := newMeter(d)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.close()); require.NoError(t, d.close()) }()
	require.NoError(t, os.Truncate(path, 0))
	_, err = m.cell(t.Context(), 64<<10, 4, time.Millisecond)
	require.ErrorContains(t, err, "it has changed meanwhile")
}
