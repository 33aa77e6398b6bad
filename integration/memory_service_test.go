package integration

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/servers"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// The promise also holds at a service, with little memory and with a disk cache. It covers data in
// flight from the service and to the disk, and seconds of read-ahead.
func TestMemoryPromiseHoldsForServiceWithDiskCache(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	const shards, records, recordBytes, budget = 6, 1000, 50_000, 64 << 20
	d := stamped(t, shards, records, recordBytes)
	d.dir = servers.Nginx(t, d.dir, "") + fmt.Sprintf("/{0000..%04d}.bin", shards-1)
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkRecords, s.Workers, s.ChunkBytes = 4096, 32, 128, 2, 1<<20
	for name, size := range map[string]string{
		"a cache that holds all":      "1GiB",
		"a cache that holds the half": fmt.Sprint(shards * records * recordBytes / 2),
		"no cache":                    "off",
	} {
		t.Run(name, func(t *testing.T) {
			w := watchMount(t, d, s, budget, "--cache-dir", filepath.Join(t.TempDir(), "cache"), "--cache-size", size, "--cache-reserve", "0", "--index-dir", t.TempDir())
			most := records * shards
			if size == "off" {
				most = 500 // one request per record
			}
			for range 2 { // the second time from the cache, as far as possible
				var group errgroup.Group
				for worker := range s.Workers {
					r := w.stampReader(recordBytes, 1<<20, worker)
					group.Go(func() error {
						if size == "off" {
							return r.next(most)
						}
						return r.all()
					})
				}
				require.NoError(t, group.Wait())
			}
			w.requirePromise()
		})
	}
}
