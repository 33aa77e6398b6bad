package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// folders returns a dataset of single files: classes as directories on three levels, samples of
// several files, and every kind of name.
func folders(t testing.TB) dataset {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(9, 1))
	for class := range 12 {
		at := fmt.Sprintf("train/n%04d", class)
		if class%3 == 0 {
			at = fmt.Sprintf("train/more/n%04d.d", class)
		}
		for i := range 5 + r.IntN(20) {
			writeFile(t, dir, fmt.Sprintf("%s/n%04d_%d.JPEG", at, class, i), bytesOf(r, r.IntN(3000)))
			if i%3 == 0 {
				writeFile(t, dir, fmt.Sprintf("%s/n%04d_%d.cls", at, class, i), []byte(fmt.Sprint(class)))
				writeFile(t, dir, fmt.Sprintf("%s/n%04d_%d.seg.png", at, class, i), bytesOf(r, 600))
			}
		}
	}
	long := "long/" + strings.Repeat("d", 120) + "/" + strings.Repeat("e", 150)
	for _, path := range []string{
		"top.txt", "LICENSE", "other.json", "__meta__/a.x", "__meta__/a.y", "__meta__/LICENSE", "__x.a", "__x.a__", "__x.b",
		"strange/with space.jpg", "strange/ünï cøde 数据.jpg", "strange/new\nline.jpg", "strange/new\nline.cls", "strange/\xff\xfe.jpg", "strange/dot.",
		"strange/" + strings.Repeat("x", 92), "strange/" + strings.Repeat("y", 93), "strange/" + strings.Repeat("z", 88) + ".jpg",
		long + "/a.jpg", long + "/a.cls", long + "/b", long + "/" + strings.Repeat("f", 250),
		".hidden", "strange/.hidden", ".dots/a.jpg",
	} {
		writeFile(t, dir, path, bytesOf(r, []int{0, 1, 511, 512, 513, 2000}[r.IntN(6)]))
	}
	require.NoError(t, os.Symlink("../top.txt", filepath.Join(dir, "strange/link.txt")))
	elsewhere := t.TempDir()
	for _, path := range []string{"linked.jpg", "linked.cls", "in/" + strings.Repeat("w", 93)} {
		writeFile(t, elsewhere, path, bytesOf(r, 700))
	}
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "directory")))
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "strange/back")))
	return dataset{name: "files", dir: dir, flags: []string{"--format", "files"}, ext: ".tar"}
}

func bytesOf(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func writeFile(t testing.TB, dir, path string, content []byte) {
	t.Helper()
	full := filepath.Join(dir, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(t, os.WriteFile(full, content, 0o644))
}

func TestFilesetStreamsEqualReference(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := folders(t)
	ref := newReference(t, d)
	records := len(ref.g(usual()))
	r := rand.New(rand.NewPCG(*drawSeed, 3))
	all := everyShuffle()
	for range *draws {
		all = append(all, draw(r, records))
	}
	for i, s := range all {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("settings %+v; again: go test ./integration -run '%s' -draws %d -drawseed %d", s, t.Name(), *draws, *drawSeed)
			left := len(ref.g(s)) // after the split
			requireCatEquals(t, d, ref, s, r.IntN(s.Workers), r.IntN(left+1))
			requireMountEquals(t, d, ref, s, r.Perm(s.Workers)[:min(s.Workers, 4)], r.IntN(left+1))
		})
	}
	m := mountDataset(t, d, usual(), "--io", "pread")
	require.Contains(t, string(m.read("dataset.json")), `"fingerprint": "`+ref.fingerprint()+`"`)
}

func TestFilePatternsNameDirectories(t *testing.T) {
	d := folders(t)
	for pattern, want := range map[string]string{
		"train/n000[12]":      "n0001/ n0002/",
		"train/n{0001..0002}": "n0001/ n0002/",
		"train/**/n0003.d":    "more/n0003.d/",
		"*":                   "__meta__/ directory/ strange/",
	} {
		list := shell(t, `"$1" cat "$2" --format files --shuffle none | tar -tf - | sed 's|[^/]*$||' | sort -u | tr '\n' ' '`, lsiofs, filepath.Join(d.dir, pattern))
		require.Equal(t, want, strings.TrimSpace(string(list)), pattern)
	}
	refused := tool(t, "cat", filepath.Join(d.dir, "top.txt"), "--format", "files")
	require.NotZero(t, refused.code)
	require.Contains(t, string(refused.stderr), "is a file: with --format files name the directory")
}

// TestRepeatedFileSamplesHaveDifferentKeys pads a dataset of one sample, so that every record has
// the same key as its predecessor.
func TestRepeatedFileSamplesHaveDifferentKeys(t *testing.T) {
	for name, files := range map[string][]string{
		"a sample":       {"a.jpg", "a.cls"},
		"without a key":  {"LICENSE"},
		"of a long path": {strings.Repeat("d", 101) + "/a.jpg"},
		"passed over":    {"__meta__/a.x", "__meta__/a.y"},
	} {
		t.Run(name, func(t *testing.T) {
			d := dataset{dir: t.TempDir(), flags: []string{"--format", "files"}, ext: ".tar"}
			for _, path := range files {
				writeFile(t, d.dir, path, []byte(path))
			}
			s := usual()
			s.Workers, s.Batch, s.Tail = 2, 6, "pad"
			ref, m := newReference(t, d), mountDataset(t, d, s)
			for w := range s.Workers {
				requireFile(t, ref.data(s, w), m.path("worker-%d.tar", w))
				requireFile(t, ref.ask(question{settings: s, Worker: w, Kind: "offsets"}), m.path("worker-%d.offsets", w))
			}
		})
	}
}

func TestTarProgramsRestoreFilesOfFolder(t *testing.T) {
	d := folders(t)
	s := usual()
	s.Workers = 1
	m := mountDataset(t, d, s)
	want := map[string]string{}
	require.NoError(t, filepath.WalkDir(d.dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		if strings.HasPrefix(e.Name(), ".") && path != d.dir {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			want[path[len(d.dir)+1:]] = string(content)
		}
		return nil
	}))
	linked, err := os.Readlink(filepath.Join(d.dir, "directory"))
	require.NoError(t, err)
	for _, name := range []string{"linked.jpg", "linked.cls", "in/" + strings.Repeat("w", 93)} {
		content, err := os.ReadFile(filepath.Join(linked, name))
		require.NoError(t, err)
		want["directory/"+name] = string(content)
	}
	extracted := func(t *testing.T, dir string) map[string]string {
		got := map[string]string{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			require.NoError(t, err)
			if e.Type().IsRegular() {
				content, err := os.ReadFile(path)
				require.NoError(t, err)
				got[path[len(dir)+1:]] = string(content)
			}
			return nil
		}))
		return got
	}
	t.Run("GNU tar", func(t *testing.T) {
		dir := t.TempDir()
		output(t, need(t, "tar"), "-xf", m.path("worker-0.tar"), "-C", dir)
		require.Equal(t, want, extracted(t, dir))
	})
	t.Run("tarfile", func(t *testing.T) {
		dir := t.TempDir()
		output(t, python(t), "-c", "import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])", m.path("worker-0.tar"), dir)
		require.Equal(t, want, extracted(t, dir))
	})
}

func TestChangedFileIsNamedByEIOAndCorrectAfterNextMount(t *testing.T) {
	d := folders(t)
	s := usual()
	ref := newReference(t, d)
	var before [][]byte
	for w := range s.Workers {
		before = append(before, ref.data(s, w))
	}
	m := mountDataset(t, d, s, "--memory", "1MiB")
	writeFile(t, d.dir, "other.json", []byte("this was not so when it was indexed"))
	failed := 0
	for w := range s.Workers {
		failed += failedBlocks(t, before[w], m.path("worker-%d.tar", w))
	}
	require.Positive(t, failed, "one of the streams has the file")
	require.Contains(t, string(m.read("status"))+m.log.String(), "other.json: size is 35 bytes")
	require.NoError(t, os.Remove(filepath.Join(d.dir, "train/n0001/n0001_0.JPEG")))
	writeFile(t, d.dir, "train/new/a.jpg", []byte("new"))
	after, again := newReference(t, d), mountDataset(t, d, s)
	for w := range s.Workers {
		requireFile(t, after.data(s, w), again.path("worker-%d.tar", w))
	}
}

func TestOnlyChangedDirectoriesAreIndexedAgain(t *testing.T) {
	d := folders(t)
	index := func() (shards, reused int) {
		var s struct {
			Shards int `json:"shards"`
			Reused int `json:"shards_reused"`
		}
		require.NoError(t, json.Unmarshal(toolOK(t, "index", d.dir, "--format", "files", "--json"), &s))
		return s.Shards, s.Reused
	}
	shards, reused := index()
	require.Zero(t, reused)
	again, reused := index()
	require.Equal(t, shards, again)
	require.Equal(t, shards, reused)
	writeFile(t, d.dir, "train/n0001/n0001_0.JPEG", []byte("changed"))
	writeFile(t, d.dir, "train/n0002/added.jpg", nil)
	require.NoError(t, os.Remove(filepath.Join(d.dir, "strange/dot.")))
	writeFile(t, d.dir, "train/new/a.jpg", []byte("new"))
	again, reused = index()
	require.Equal(t, shards+1, again)
	require.Equal(t, shards-3, reused)
}

func TestVerifyReadsFilesets(t *testing.T) {
	d := folders(t)
	const records = `(?m)^records +199$`
	require.Regexp(t, records, string(toolOK(t, "verify", d.dir, "--format", "files")))
	require.Regexp(t, records, string(toolOK(t, "verify", d.dir, "--format", "files", "--order")))
}

// failedBlocks reads a tar stream block by block. Each read must return EIO or the right bytes. It
// returns the number of failures.
func failedBlocks(t *testing.T, want []byte, path string) (failed int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	buf := make([]byte, 512)
	for off := 0; off < len(want); off += len(buf) {
		if _, err := f.ReadAt(buf, int64(off)); err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			failed++
			continue
		}
		requireSameBytes(t, want[off:off+len(buf)], buf, "%s at %d", path, off)
	}
	return failed
}

// TestReadingManyFilesDoesNotLeak reads many files twice, and checks that the server holds no
// more descriptors, threads and memory than for a few.
func TestReadingManyFilesDoesNotLeak(t *testing.T) {
	serve.Tier(t, serve.CI)
	files := 20_000
	if serve.Runs(serve.Night) && !raceBuilt {
		files = 100_000
	}
	dir := t.TempDir()
	for i := range files {
		if i%1000 == 0 {
			require.NoError(t, os.Mkdir(filepath.Join(dir, fmt.Sprintf("%03d", i/1000)), 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d/%06d.txt", i/1000, i)), fmt.Appendf(nil, "%06d", i), 0o644))
	}
	d := dataset{dir: dir, flags: []string{"--format", "files", "--read", "gather"}, ext: ".tar"}
	s := usual()
	s.Workers, s.ChunkBytes, s.ShuffleSize = 1, 256<<10, 4096
	limited := []string{"sh", "-c", `ulimit -n 64 && exec "$@"`, "sh"}
	m := startMountBy(t, limited, d, t.TempDir(), append(s.flags(), "--memory", "16MiB")...)
	require.NoError(t, m.waitUntilMounted())
	for epoch := range 2 {
		out := shell(t, `tar -b 2048 -tf "$1" | sort | uniq | wc -l`, m.path("epoch-%d/worker-0-of-1.tar", epoch))
		require.Equal(t, fmt.Sprint(files), strings.TrimSpace(string(out)))
	}
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid))
	require.NoError(t, err)
	require.Less(t, len(descriptors), 40)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", m.cmd.Process.Pid))
	require.NoError(t, err)
	require.Less(t, len(threads), 100)
	if !raceBuilt {
		require.Less(t, heldBy(t, m.cmd.Process.Pid), 100<<20)
	}
}
