package integration

import (
	"encoding/json"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/fs/rings/ringstest"
)

func TestIoUringMountsGiveSameBytesAndCheckpoints(t *testing.T) {
	ringstest.Need(t)
	t.Parallel()
	for _, d := range []dataset{plain(t, "tar", 3), makeDataset(t, formatNamed("jsonl"), codecs[1], 3, 7), plain(t, "npy", 2)} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			want, s := newReference(t, d), usual()
			s.Workers = 3
			m := mountDataset(t, d, s, "--fuse-io-uring")
			var status struct {
				Kernel struct {
					RequestsBy string `json:"requests_by"`
				} `json:"kernel"`
			}
			require.NoError(t, json.Unmarshal(m.read("status.json"), &status))
			require.Equal(t, "io_uring", status.Kernel.RequestsBy)
			var readers sync.WaitGroup
			for w := range s.Workers {
				for range 2 {
					readers.Go(func() { requireFile(t, want.data(s, w), m.path("worker-%d%s", w, d.ext)) })
				}
			}
			readers.Wait()
			saved := m.read("checkpoint")
			device := mountDataset(t, d, s)
			for _, to := range []*mount{device, m} {
				require.NoError(t, os.WriteFile(to.path("checkpoint"), saved, 0o644))
			}
			require.JSONEq(t, string(device.read("checkpoint")), string(m.read("checkpoint")))
			m.requireAlive()
		})
	}
}

func TestReadersOfKilledIoUringMountFailAndNextMountHealsIt(t *testing.T) {
	ringstest.Need(t)
	t.Parallel()
	d, s := plain(t, "tar", 3), usual()
	m := mountDataset(t, d, s, "--fuse-io-uring")
	require.NotEmpty(t, m.read("worker-0%s", d.ext))
	m.kill()
	again := mountAt(t, d, m.dir, append(s.flags(), "--fuse-io-uring")...)
	requireFile(t, newReference(t, d).data(s, 0), again.path("worker-0%s", d.ext))
}
