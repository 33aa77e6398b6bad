package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// loopbackVariable makes this test program serve a loopback file system of go-fuse at $1. Its value
// is the directory to show.
const loopbackVariable = "LSIOFS_TEST_LOOPBACK"

func init() {
	dir := os.Getenv(loopbackVariable)
	if dir == "" {
		return
	}
	root, err := fusefs.NewLoopbackRoot(dir)
	if err == nil {
		server, mountErr := fusefs.Mount(os.Args[1], root, &fusefs.Options{})
		if err = mountErr; err == nil {
			server.Wait()
			os.Exit(0)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// loopback shows a directory through another FUSE file system.
func loopback(t *testing.T, dir string) string {
	t.Helper()
	needFUSE(t)
	program, err := os.Executable()
	require.NoError(t, err)
	point := t.TempDir()
	cmd := exec.Command(program, point)
	cmd.Env = append(os.Environ(), loopbackVariable+"="+dir)
	cmd.Stderr = os.Stderr
	ended, err := serve.Launch(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		detach(point)
		select {
		case <-ended:
		case <-time.After(clientLimit):
			cmd.Process.Kill()
			<-ended
		}
	})
	until(t, ended, func() bool { return isMount(point) }, "its mount")
	return point
}

// mounted mounts one of the system's file systems for the duration of the test.
func mounted(t *testing.T, kind, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "%s can be mounted by root only", kind)
	}
	point := t.TempDir()
	if r := command(t, nil, nil, "mount", "-t", kind, "-o", options, kind, point); r.code != 0 {
		missing(t, "%s can't be mounted: %s", kind, r.stderr)
	}
	t.Cleanup(func() { whileBusy(t, "umount", point) })
	return point
}

// copied copies a dataset's files into dir.
func copied(t *testing.T, d dataset, dir string) dataset {
	t.Helper()
	shell(t, `cp -a "$1/." "$2"`, d.dir, dir)
	d.dir = dir
	return d
}

func TestADatasetMayLieOnAnyFileSystem(t *testing.T) {
	serve.Tier(t, serve.CI)
	for name, put := range map[string]func(t *testing.T, d dataset) dataset{
		"tmpfs": func(t *testing.T, d dataset) dataset { return copied(t, d, mounted(t, "tmpfs", "size=64m")) },
		"overlayfs": func(t *testing.T, d dataset) dataset {
			own := mounted(t, "tmpfs", "size=64m")
			upper, work := filepath.Join(own, "upper"), filepath.Join(own, "work")
			require.NoError(t, os.Mkdir(upper, 0o755))
			require.NoError(t, os.Mkdir(work, 0o755))
			d.dir = mounted(t, "overlay", fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", d.dir, upper, work))
			// One shard is in the upper layer: it was copied when it was written to.
			shards, err := filepath.Glob(filepath.Join(d.dir, "part-0", "*"))
			require.NoError(t, err)
			f, err := os.OpenFile(shards[0], os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			return d
		},
		"another FUSE": func(t *testing.T, d dataset) dataset {
			d.dir = loopback(t, d.dir)
			return d
		},
	} {
		for _, codec := range []codec{codecs[0], codecs[2]} {
			t.Run(name+codec.ext, func(t *testing.T) {
				d := put(t, makeDataset(t, formatNamed("tar"), codec, 9, *drawSeed))
				s := usual()
				ref := newReference(t, d)
				for _, flags := range [][]string{nil, {"--direct", "on"}, {"--io", "pread"}} {
					m := mountDataset(t, d, s, flags...)
					for w := range s.Workers {
						requireFile(t, ref.data(s, w), m.path("worker-%d.tar", w))
					}
					m.end()
				}
			})
		}
	}
}

// TestTheStreamsOfAMountAreADataset reads the shuffled streams of another mount.
func TestTheStreamsOfAMountAreADataset(t *testing.T) {
	first := mountDataset(t, plain(t, "jsonl", 6), usual())
	d := dataset{dir: first.path("epoch-0/*-of-3.jsonl"), ext: ".jsonl"}
	s := usual()
	s.Workers = 2
	m := mountDataset(t, d, s)
	ref := newReference(t, d)
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.jsonl", w))
	}
}

// The kernel forgets names when it is short of memory. The shards must still be the same files
// afterwards: another inode number means that a file was replaced.
func TestTheStreamsOfAMountStayADatasetWhenTheKernelForgetsThem(t *testing.T) {
	serve.Alone(t)
	asRoot(t)
	first := mountDataset(t, plain(t, "jsonl", 6), usual())
	d := dataset{dir: first.path("epoch-0/*-of-3.jsonl"), ext: ".jsonl"}
	s := usual()
	s.Workers = 2
	ref := newReference(t, d)
	dir := t.TempDir()
	toolOK(t, "index", d.dir, "--index-dir", dir)
	m := mountDataset(t, d, s, "--index-dir", dir) // this opens no shard
	shard := first.path("epoch-0/worker-0-of-3.jsonl")
	before, err := os.Stat(shard)
	require.NoError(t, err)
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0); err != nil {
		missing(t, "the kernel can't be told to forget names: %v", err) // as in a container
	}
	after, err := os.Stat(shard)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.jsonl", w))
	}
}

func TestTwoMountsOfADatasetDoNotKnowOfEachOther(t *testing.T) {
	d := big(t)
	s, other := bigSettings(), bigSettings()
	other.Seed, other.Workers = 7, 3
	ref := newReference(t, d)
	dir := t.TempDir()
	var mounts [2]*mount
	var group sync.WaitGroup
	for i, s := range []settings{s, other} {
		mounts[i] = startMount(t, d, t.TempDir(), append(s.flags(), "--index-dir", dir)...)
	}
	for _, m := range mounts { // their index passes run concurrently
		require.NoError(t, m.waitUntilMounted())
	}
	for i, s := range []settings{s, other} {
		for w := range s.Workers {
			want := ref.data(s, w)
			group.Go(func() {
				got, err := os.ReadFile(mounts[i].path("worker-%d.bin", w))
				if err != nil || string(got) != string(want) {
					t.Errorf("mount %d, worker %d: %d bytes, want %d: %v", i, w, len(got), len(want), err)
				}
			})
		}
	}
	group.Wait()
	mounts[0].restore([]byte(`{"epoch": 5, "samples": 100}`))
	require.Zero(t, mounts[1].checkpoint().Epoch)
	mounts[0].kill()
	requireFile(t, ref.ask(question{settings: other, Worker: 1, Kind: "data"}), mounts[1].path("worker-1.bin"))
	mounts[1].end()
	require.Equal(t, 16, index(t, d, "--index-dir", dir).Reused)
}

func TestTwentyMountsOnOneMachine(t *testing.T) {
	serve.Tier(t, serve.CI)
	s := usual()
	var mounts []*mount
	var want [][]byte
	for _, codec := range codecs {
		d := makeDataset(t, formatNamed("jsonl"), codec, 4, *drawSeed)
		ref := newReference(t, d)
		for range 5 {
			s.Seed++
			want = append(want, ref.data(s, 1))
			mounts = append(mounts, startMount(t, d, t.TempDir(), append(s.flags(), "--memory", "1MiB")...))
		}
	}
	require.Len(t, mounts, 20)
	for _, m := range mounts {
		require.NoError(t, m.waitUntilMounted())
	}
	var group errgroup.Group
	for i, m := range mounts {
		group.Go(func() error {
			got, err := os.ReadFile(m.path("worker-1.jsonl"))
			if err == nil && string(got) != string(want[i]) {
				err = fmt.Errorf("mount %d gives other bytes", i)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}
