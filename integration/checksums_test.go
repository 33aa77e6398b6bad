package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// alterUnseen changes a file without changing its size, mtime and inode, by which a mount with an
// index detects changes.
func alterUnseen(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	size := len(b)
	b = change(b)
	require.Len(t, b, size)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// Whatever a shard's attributes are, bytes that fail one of the format's checksums are not
// delivered, however often, and through however many opens, they are requested.
func TestDataThatFailsItsChecksumAfterTheIndexWasBuiltIsEIOAndStaysIt(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, c := range []badInput{
		{format: "jsonl", codec: ".gz", pack: flipTail(6)},
		{format: "jsonl", codec: ".zst", pack: flipTail(1)},
		{format: "jsonl", codec: ".lz4", pack: flipTail(1)},
		{format: "tfrecord", spoil: flip(12)},
	} {
		for _, read := range []string{"scan", "spool"} {
			if c.codec == "" && read == "spool" {
				continue
			}
			t.Run(c.format+c.codec+" "+read, func(t *testing.T) {
				good := badInput{format: c.format, codec: c.codec}
				d, _, _ := good.dataset(t)
				name := "shard-0001" + formatNamed(c.format).ext + c.codec
				s := usual()
				s.Shuffle, s.Workers = "none", 1
				ref := newReference(t, d)
				want := ref.data(s, 0)
				offsets := splitOffsets(ref.ask(question{settings: s, Kind: "offsets"}))
				m := mountDataset(t, d, s, "--memory", "1MiB", "--read", read, "--spool-dir", spoolDir(t))
				bad, _, _ := c.dataset(t) // the same bytes except for the damage
				b, err := os.ReadFile(filepath.Join(bad.dir, name))
				require.NoError(t, err)
				alterUnseen(t, filepath.Join(d.dir, name), func([]byte) []byte { return b })
				var failed []int
				for pass := range 3 {
					f, err := os.Open(m.path([]string{"worker-0%s", "epoch-0/worker-0-of-1%s", "worker-0%s"}[pass], d.ext))
					require.NoError(t, err)
					defer f.Close()
					var now []int
					for i := range len(offsets) - 1 {
						buf := make([]byte, offsets[i+1]-offsets[i])
						if _, err := f.ReadAt(buf, int64(offsets[i])); err != nil {
							require.ErrorIs(t, err, syscall.EIO)
							now = append(now, i)
							continue
						}
						requireSameBytes(t, want[offsets[i]:offsets[i+1]], buf, "record %d", i)
					}
					require.NotEmpty(t, now)
					require.Subset(t, now, failed, "what could not be read once can't be read again")
					failed = now
				}
				if c.codec == "" {
					require.Len(t, failed, 1, "the others have checksums of their own")
				}
				named := fmt.Sprintf(`%s: record \d+ at \[\d+, \d+\)`, name)
				require.Regexp(t, named, string(m.read("status")))
				m.requireLog(named)
			})
		}
	}
}

// A tar has checksums for its headers only. They are not checked again when records are read, but
// verify does.
func TestVerifyFindsTarHeaderChangedAfterIndexing(t *testing.T) {
	good := badInput{format: "tar"}
	d, _, _ := good.dataset(t)
	toolOK(t, "index", d.dir)
	bad, _, _ := badInput{format: "tar", spoil: flip(3)}.dataset(t)
	b, err := os.ReadFile(filepath.Join(bad.dir, "shard-0001.tar"))
	require.NoError(t, err)
	alterUnseen(t, filepath.Join(d.dir, "shard-0001.tar"), func([]byte) []byte { return b })
	r := tool(t, "verify", d.dir)
	require.Equal(t, 7, r.code, "%s%s", r.stdout, r.stderr)
	require.Contains(t, string(r.stdout)+r.stderr, "shard-0001.tar")
}
