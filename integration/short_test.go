package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
)

// Files of some file systems have no pages in the kernel, and a read may return fewer bytes than
// requested.
func TestShortReadsOfStorageChangeNoBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"a.bin", "b.bin", "c.bin", "d.bin"}
	record := make([]byte, 1000) // few begin with a block
	for i, name := range names {
		var shard []byte
		for j := range 500 {
			for k := range record {
				record[k] = byte(1 + (i*31+j*7+k)%255) // no zeros
			}
			shard = append(shard, record...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), shard, 0o644))
	}
	whole := dataset{name: "unaligned", dir: dir, flags: []string{"--format", "fixed", "--record-bytes", "1000"}, ext: ".bin"}
	want := newReference(t, whole)
	for _, way := range ways {
		for _, shuffle := range []string{"none", "full"} {
			t.Run(way.name+", "+shuffle, func(t *testing.T) {
				t.Parallel()
				d, b := backingDataset(t, whole, backing.Options{Uncached: true})
				s := usual()
				s.Shuffle, s.Workers, s.ChunkBytes, s.ChunkRecords = shuffle, 2, 4000, 4
				var faults []backing.Fault
				for _, name := range names {
					faults = append(faults, backing.Fault{Path: name, To: 1 << 20, Do: backing.Short})
				}
				b.Fail(faults...) // its index is made from such answers, too
				m := mountDataset(t, d, s, append([]string{"--memory", "1MiB"}, way.flags...)...)
				for w := range s.Workers {
					requireFile(t, want.data(s, w), m.path("worker-%d.bin", w))
				}
				m.requireAlive()
			})
		}
	}
}
