package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
)

// zipped returns a copy of d with each shard in one gzip member.
func zipped(t *testing.T, d dataset) dataset {
	t.Helper()
	dir := t.TempDir()
	names, err := filepath.Glob(filepath.Join(d.dir, "*"+d.ext))
	require.NoError(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err = w.Write(b)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)+".gz"), z.Bytes(), 0o644))
	}
	d.dir = dir
	return d
}

// requireRead reads len(want) bytes of a file in a separate program, which must finish.
func requireRead(t *testing.T, want []byte, path string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("dd", "if="+path, "bs=64K", "iflag=fullblock", "status=none", fmt.Sprintf("count=%d", len(want)/(64<<10)))
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	requireEnd(t, cmd, path+" lies on healthy storage")
	requireSameBytes(t, want, out.Bytes(), "%s", path)
}

// mountUnopened mounts with an existing index, so that no shard has been opened yet.
func mountUnopened(t *testing.T, d dataset, s settings, more ...string) *mount {
	t.Helper()
	dir := t.TempDir()
	index(t, d, "--index-dir", dir)
	return mountDataset(t, d, s, append(more, "--index-dir", dir)...)
}

func TestStalledOpenBlocksOnlyReadersOfThatFile(t *testing.T) {
	t.Parallel()
	stored := big(t)
	compressed := zipped(t, stored)
	ref, s := newReference(t, stored), inOrder()
	want := make([][]byte, s.Workers)
	for w := range want {
		want[w] = ref.data(s, w)
	}
	for _, way := range ways {
		for _, strategy := range []string{"auto", "scan", "gather", "spool"} {
			t.Run(way.name+", "+strategy, func(t *testing.T) {
				t.Parallel()
				whole, memory := stored, "3MiB"
				if strategy == "spool" {
					whole, memory = compressed, "64MiB" // each shard that is decoded has a share
				}
				d, b := backingDataset(t, whole, backing.Options{})
				m := mountUnopened(t, d, s, append(way.flags, "--memory", memory, "--read", strategy)...)
				b.Fail(backing.Fault{Path: "b.bin", Open: true, Do: backing.Stall}, backing.Fault{Path: "b.bin.gz", Open: true, Do: backing.Stall})

				path := m.path("worker-0.bin")
				first := want[0]
				waits := reads(t, path, 1<<20+100) // of b
				b.WaitStalled(1)
				requireRead(t, first[:1<<20], path) // a, from which b is read ahead
				require.NoError(t, waits.Process.Kill())
				requireEnd(t, waits, "a reader that waits dies of a signal")
				for w := 1; w < s.Workers; w++ {
					requireRead(t, want[w], m.path("worker-%d.bin", w))
				}
				m.requireAlive()
				b.Fail()
				requireFile(t, first, path)
			})
		}
	}
}

// More opens stall than are made at a time, but one file can still be read.
func TestManyStalledOpensBlockNoOtherReaders(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			const shards = 41
			whole := dataset{name: "many", dir: t.TempDir(), flags: []string{"--format", "fixed", "--record-bytes", "4096"}, ext: ".bin"}
			for i := range shards {
				require.NoError(t, os.WriteFile(filepath.Join(whole.dir, fmt.Sprintf("%02d.bin", i)), bytes.Repeat([]byte{byte(i + 1)}, 64<<10), 0o644))
			}
			want := newReference(t, whole)
			s := inOrder()
			s.Workers = shards // each has one shard
			d, b := backingDataset(t, whole, backing.Options{})
			m := mountUnopened(t, d, s, way.flags...)
			var stalled []backing.Fault
			for i := range shards - 1 {
				stalled = append(stalled, backing.Fault{Path: fmt.Sprintf("%02d.bin", i), Open: true, Do: backing.Stall})
			}
			b.Fail(stalled...)
			var waiting []*exec.Cmd
			for w := range shards - 1 {
				waiting = append(waiting, reads(t, m.path("worker-%d.bin", w), 0))
			}
			b.WaitStalled(16)
			requireRead(t, want.data(s, shards-1), m.path("worker-%d.bin", shards-1))
			b.WaitStalled(shards - 1)
			b.Fail()
			for _, r := range waiting {
				requireEnd(t, r, "its file has been opened")
			}
			requireFile(t, want.data(s, 0), m.path("worker-0.bin"))
		})
	}
}

func TestAMountEndsWhileAnOpeningStalls(t *testing.T) {
	t.Parallel()
	d, b := backingDataset(t, big(t), backing.Options{})
	m := mountUnopened(t, d, inOrder())
	b.Fail(backing.Fault{Path: "b.bin", Open: true, Do: backing.Stall})
	waits := reads(t, m.path("worker-0.bin"), 1<<20+100)
	b.WaitStalled(1)
	toolOK(t, "umount", "--lazy", m.dir)
	require.NoError(t, waits.Process.Kill())
	requireEnd(t, waits, "a reader that waits dies of a signal")
	b.Fail()
	m.end()
}
