package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// rewrite overwrites a file in place with other bytes.
func rewrite(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range b {
		b[i] ^= 0xff
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestShardModifiedWithTimeSetBackIsIndexedAgain(t *testing.T) {
	d := plain(t, "jsonl", 4)
	shard := filepath.Join(d.dir, "part-0/shard-0002.jsonl")
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(shard, past, past))
	dir := t.TempDir()
	before := index(t, d, "--index-dir", dir)
	require.Equal(t, before.Shards, index(t, d, "--index-dir", dir).Reused)

	b, err := os.ReadFile(shard)
	require.NoError(t, err)
	last := bytes.LastIndex(bytes.TrimSuffix(b, []byte("\n")), []byte("}\n"))
	changed := bytes.Clone(b)
	changed[last+1] = ' ' // two lines become one
	require.Len(t, changed, len(b))
	f, err := os.OpenFile(shard, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(changed, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Chtimes(shard, past, past))
	after := index(t, d, "--index-dir", dir)
	require.Equal(t, before.Shards-1, after.Reused)
	require.NotEqual(t, before.Records, after.Records)
	require.Equal(t, newReference(t, d).fingerprint(), after.Fingerprint)
}

// TestDatasetOnFileSystemThatRenumbersFiles has a dataset on FUSE whose files the kernel
// forgets between two runs, and between a mount and its reads.
func TestDatasetOnFileSystemThatRenumbersFiles(t *testing.T) {
	for _, whole := range []dataset{big(t), folders(t)} {
		t.Run(whole.name, func(t *testing.T) {
			d, b := backingDataset(t, whole, backing.Options{NewInodes: true})
			forget := func() {
				require.NoError(t, filepath.WalkDir(whole.dir, func(path string, e os.DirEntry, err error) error {
					if err == nil && e.Type().IsRegular() {
						rel, err := filepath.Rel(whole.dir, path)
						require.NoError(t, err)
						b.Forget(rel)
					}
					return err
				}))
			}
			dir := t.TempDir()
			first := index(t, d, "--index-dir", dir)
			forget()
			require.Equal(t, first.Shards, index(t, d, "--index-dir", dir).Reused)
			s := usual()
			want := newReference(t, whole)
			m := mountDataset(t, d, s, "--index-dir", dir)
			for w := range s.Workers {
				forget()
				requireFile(t, want.data(s, w), m.path("worker-%d%s", w, d.ext))
			}
		})
	}
}

// The file system lets the kernel cache attributes for an hour, so that the kernel reports no
// change of its own accord.
func TestShardsChangedUnderCachedAttributesAreEIO(t *testing.T) {
	serve.Tier(t, serve.CI)
	run := func(name string, make func(testing.TB) dataset, flags ...string) {
		t.Run(fmt.Sprint(name, flags), func(t *testing.T) {
			whole := make(t)
			d, _ := backingDataset(t, whole, backing.Options{Attributes: time.Hour, ReadOnly: true})
			s := bigSettings()
			want := newReference(t, whole)
			streams := [][]byte{want.data(s, 0), want.data(s, 1), want.data(s, 2), want.data(s, 3)}
			m := mountDataset(t, d, s, append(flags, "--memory", "1MiB")...)
			head := readUpTo(t, m.path("worker-0%s", d.ext), 4096)
			requireSameBytes(t, streams[0][:4096], head, "before")
			require.NoError(t, filepath.WalkDir(whole.dir, func(path string, e os.DirEntry, err error) error {
				if err == nil && e.Type().IsRegular() {
					rewrite(t, path)
				}
				return err
			}))
			for w, stream := range streams {
				got, err := os.ReadFile(m.path("worker-%d%s", w, d.ext))
				require.ErrorIs(t, err, syscall.EIO)
				requireSameBytes(t, stream[:len(got)], got, "what was sent of worker %d", w)
			}
			m.requireLog("changed since it was indexed")
		})
	}
	for _, way := range ways {
		for _, strategy := range []string{"scan", "gather"} {
			run("big", big, append(way.flags, "--read", strategy)...)
		}
	}
	run("files", largeFolders)
}

// largeFolders returns files in directories, 16 MiB in total.
func largeFolders(t testing.TB) dataset {
	dir := t.TempDir()
	for i := range 64 {
		writeFile(t, dir, fmt.Sprintf("d%d/%02d.bin", i%4, i), bytes.Repeat([]byte{byte(i)}, 256<<10))
	}
	return dataset{name: "large files", dir: dir, flags: []string{"--format", "files"}, ext: ".tar"}
}

func readUpTo(t *testing.T, path string, n int) []byte {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, n)
	_, err = io.ReadFull(f, b)
	require.NoError(t, err)
	return b
}

// TestMountOutlivesFileSystemOfItsIndex makes all reads of the stored index fail after the page
// cache has dropped it.
func TestMountOutlivesFileSystemOfItsIndex(t *testing.T) {
	needFUSE(t)
	behind := t.TempDir()
	b := backing.Mount(t, behind, backing.Options{}, environment(filepath.Join(scratch, "tmp")))
	d := plain(t, "tar", 9)
	s := usual()
	want := newReference(t, d)
	for _, stored := range []bool{false, true} {
		m := mountDataset(t, d, s, "--index-dir", b.Dir)
		files := indexFiles(t, behind)
		require.NotEmpty(t, files)
		for _, path := range files {
			name := filepath.Base(path)
			b.Fail(backing.Fault{Path: name, To: 1 << 40, Do: backing.EIO})
			if f, err := os.Open(filepath.Join(b.Dir, name)); err == nil { // so that the kernel knows it
				f.Close()
			}
			b.Drop(name)
		}
		for w := range s.Workers {
			requireFile(t, want.data(s, w), m.path("worker-%d.tar", w))
		}
		m.requireAlive()
		require.False(t, mapsIndex(t, m), "stored before: %v", stored)
		b.Fail()
		m.end()
	}
}

// A small index is not mapped, so its disk may fail, too.
func TestSmallIndexIsNotMappedFromDisk(t *testing.T) {
	m := mountDataset(t, plain(t, "tar", 9), usual(), "--index-dir", smallDisk(t))
	require.False(t, mapsIndex(t, m))
}

// mapsIndex reports whether a server has mapped pages of a stored index.
func mapsIndex(t *testing.T, m *mount) bool {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", m.cmd.Process.Pid))
	require.NoError(t, err)
	return strings.Contains(string(maps), ".index")
}

// TestShardRewrittenInSecondOfMountIsEIO uses a file system with times of
// whole seconds: inodes of 128 bytes.
func TestShardRewrittenInSecondOfMountIsEIO(t *testing.T) {
	for _, format := range []string{"fixed", "files"} {
		t.Run(format, func(t *testing.T) {
			disk := smallDisk(t, "-I", "128")
			d := dataset{dir: filepath.Join(disk, "data"), flags: []string{"--format", "fixed", "--record-bytes", "4096"}, ext: ".bin"}
			if format == "files" {
				d.flags, d.ext = []string{"--format", "files"}, ".tar"
			}
			s := usual()
			s.Workers = 1
			m, path := (*mount)(nil), filepath.Join(d.dir, "a.bin")
			startOfSecond()
			writeFile(t, d.dir, "a.bin", bytes.Repeat([]byte{1}, 4<<20)) // more than memory keeps of it
			m = mountDataset(t, d, s, "--memory", "1MiB")
			before, err := os.ReadFile(m.path("worker-0%s", d.ext))
			require.NoError(t, err)
			require.NotContains(t, string(before), "\xfe\xfe")
			rewrite(t, path)
			after, err := os.ReadFile(m.path("epoch-1/worker-0-of-1%s", d.ext))
			if err == nil || !errors.Is(err, syscall.EIO) {
				require.Fail(t, "it was read", "%d bytes, of which %d are new, %v", len(after), bytes.Count(after, []byte{0xfe}), err)
			}
			require.NotContains(t, string(after), "\xfe\xfe")
			var st unix.Stat_t
			require.NoError(t, unix.Stat(path, &st))
			require.Zero(t, st.Mtim.Nsec, "times are of whole seconds")
		})
	}
}

// startOfSecond waits for the start of a second, so that what follows is likely to happen in it.
func startOfSecond() { time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) }
