package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

func TestStatusShowsDecodingOfArrays(t *testing.T) {
	told := func(r *statusReport) string {
		var b strings.Builder
		r.DescribeCubes(func(label, format string, args ...any) {
			fmt.Fprintf(&b, "%s: %s\n", label, fmt.Sprintf(format, args...))
		})
		return b.String()
	}
	r := &statusReport{}
	require.Empty(t, told(r), "there are no arrays")
	r.Pipeline.Cubes = &crops.Stats{Decoded: 1234, Found: 5678, StoredBytes: 3 << 20, HeldBytes: 2 << 20}
	require.Equal(t, "chunks: 1,234 decoded (3.0 MiB stored), 5,678 times already decoded when needed; 2.0 MiB in memory\n", told(r))
	r.Pipeline.Cubes.Blocks = 17
	require.Contains(t, told(r), "blosc: 17 blocks decoded without the rest of their chunks\n")
}

func TestArrayMetricsExistOnlyForArrays(t *testing.T) {
	s := &sample{view: &view{number: 1}}
	text := func() string { return string(metricsText(s)) }
	require.NotContains(t, text(), "lsiofs_zarr")
	s.Pipeline.Cubes = &crops.Stats{Decoded: 1, Found: 2, StoredBytes: 3, Blocks: 4, HeldBytes: 5}
	got := text()
	for _, line := range []string{
		"lsiofs_zarr_chunks_decoded_total 1", "lsiofs_zarr_chunks_found_total 2", "lsiofs_zarr_stored_bytes_total 3", "lsiofs_zarr_blocks_decoded_total 4", "lsiofs_zarr_held_bytes 5",
	} {
		require.Contains(t, got, line+"\n")
	}
}

func TestStatusShowsServiceStatistics(t *testing.T) {
	told := func(r *statusReport) string {
		var b strings.Builder
		r.DescribeService(func(label, format string, args ...any) {
			fmt.Fprintf(&b, "%s: %s\n", label, fmt.Sprintf(format, args...))
		})
		return b.String()
	}
	r := &statusReport{}
	require.Empty(t, told(r), "a file system answers as it does")

	r.Pipeline.Remote = &remote.Stats{Requests: map[string]uint64{"206": 12, "200": 12}, Bytes: 1 << 20, Slots: 16}
	r.Pipeline.Cache = &diskcache.Stats{Dir: "/c", State: "on", Bytes: 1 << 20, Bound: 1 << 30}
	require.Equal(t, `service: 24 requests (200: 12, 206: 12), 1.0 MiB
under way: 0 of at most 16 requests; 0 reads waiting for a slot, 0 to be retried
disk cache: 1.0 MiB of 1.0 GiB used in /c
`, told(r), "what did not happen is not told")

	s := r.Pipeline.Remote
	s.Throttled, s.Retries, s.Hedges, s.HedgesWon, s.PriceDollars, s.LastError = 3, map[string]uint64{"throttled": 3, "failed": 1000}, 5, 2, 0.25, "a.tar: 503"
	*r.Pipeline.Cache = diskcache.Stats{Dir: "/c", State: "off", Reason: "no space", Hits: 1, Misses: 3, BadPages: 2, Fill: 0.5}
	text := told(r)
	for _, want := range []string{
		"about $0.2500 at S3's list price", "tried again: 1,003 requests (failed: 1,000, throttled: 3); the service asked 3 times to slow down",
		"sent twice: 5 slow requests; the second response came first 2 times", "last error: a.tar: 503",
		"hits: 25.0 % of 4 pages; 50.0 % filled; 2 pages failed their checksum", "it is off (no space)",
	} {
		require.Contains(t, text, want)
	}
}

// For a mixture, status reports each source at a service under its name.
func TestStatusShowsServiceOfEachSource(t *testing.T) {
	r := &statusReport{}
	r.Pipeline.Sources = []pipeline.SourceStatus{
		{Name: "disk"}, {Name: "web", Remote: &remote.Stats{Requests: map[string]uint64{"206": 5}, Slots: 8}},
		{Name: "far", Remote: &remote.Stats{Slots: 4}, Cache: &diskcache.Stats{Dir: "/c", State: "on", Bytes: 1 << 20, Bound: 1 << 30}},
	}
	var lines []string
	r.DescribeService(func(label, format string, args ...any) {
		lines = append(lines, label+": "+fmt.Sprintf(format, args...))
	})
	require.Equal(t, []string{
		"source: web", "service: 5 requests (206: 5), 0 B", "under way: 0 of at most 8 requests; 0 reads waiting for a slot, 0 to be retried",
		"source: far", "service: 0 requests, 0 B", "under way: 0 of at most 4 requests; 0 reads waiting for a slot, 0 to be retried",
		"disk cache: 1.0 MiB of 1.0 GiB used in /c",
	}, lines)
}

func TestServiceCountsCoverOnlyWindow(t *testing.T) {
	s := &remote.Stats{Slots: 16, InUse: 5, FirstByte: remote.Latency{P50: 0.02, P95: 0.3}}
	got := serviceSince(explain.Snapshot{Requests: 100, Throttled: 7}, explain.Snapshot{Requests: 150, Throttled: 9}, s, 128)
	require.Equal(t, explain.Service{Requests: 50, Throttled: 2, Slots: 16, InUse: 5, Most: 128, FirstByteP50: 0.02, FirstByteP95: 0.3}, got)
}

func TestStatusOfGrowingMountShowsWhenNextEpochIsAvailable(t *testing.T) {
	s := mountGrowing(t)
	status := s.must("cat status")
	for _, says := range []string{
		"run          " + s.p.Run() + " is at epoch 0, snapshot 8f8f8f8f8f8f…, started by node3/4711 (host/process) at 2026-11-21T22:28:47Z\n",
		"next epoch   epoch 1 is not available yet: 3 of 5 new records; new shards: 0, with records: 3\n",
		"use          4.50 times per record\n",
		"warning      a record is used 4.5 times: raise --min-new\n",
		"arriving     known shards: 4 (window 500000units, the newest d.txt); files settling: 1, to be indexed: 0, waiting: 1, skipped: 2\n",
		"watched by   inotify; the last scan took 0.25 s; the kernel dropped change notifications 6 times\n",
		"\nwaiting files, 1 in total:\n  broken.txt: it ends in the middle of a line\n",
	} {
		require.Contains(t, status, says)
	}
	var report struct {
		Growing *GrowingReport `json:"growing"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.must("cat status.json")), &report))
	require.Equal(t, s.p.Run(), report.Growing.Run)
	require.EqualValues(t, 5, report.Growing.NeededRecords)
	metrics := s.must("cat metrics")
	for _, line := range []string{
		"lsiofs_growing_epoch 0", "lsiofs_growing_new_records 3", "lsiofs_growing_new_units 2", "lsiofs_growing_settling_files 1",
		"lsiofs_growing_waiting_shards 1", "lsiofs_growing_watch_overflows_total 6", "lsiofs_growing_scan_seconds 0.25",
	} {
		require.Contains(t, metrics, "\n"+line+"\n")
	}
}

func TestREADMEOfGrowingMountNamesItsEpochs(t *testing.T) {
	s := mountGrowing(t)
	readme := s.must("cat README")
	require.Contains(t, readme, "Epoch 1 starts when a program opens a file")
	require.Contains(t, readme, "lsiofs next "+s.dir+" --wait")
	require.NotContains(t, readme, "epoch-7")
	require.NotContains(t, readme, "{{")
	s.must(`echo '{"epoch": 1}' > checkpoint`)
	readme = s.must("cat README")
	require.Contains(t, readme, "Epoch 2 starts")
	require.Contains(t, readme, `echo '{"epoch": 2}' > `)
	require.Contains(t, readme, "/epoch-1/from-")
	for line := range strings.Lines(readme) {
		require.LessOrEqual(t, len([]rune(line)), 200, line)
	}
}

func TestStatusUsesSingularForOneFile(t *testing.T) {
	s := mountGrowing(t)
	require.Contains(t, s.must("echo x > checkpoint.tmp; cat status"), "scratch      1 file, ")
	require.Contains(t, s.must("echo x > checkpoint.tmp2; cat status"), "scratch      2 files, ")
}

// While an epoch is being laid out, which here takes most of an hour, status still answers and
// reports what is waited for, even while another program looks at a worker file.
func TestStatusRespondsDuringEpochLayout(t *testing.T) {
	needFUSE(t)
	s := spec.Default()
	s.IndexDir, s.Format.Name, s.Order.Length = t.TempDir(), "lines", 1<<36
	for _, name := range []string{"a", "b"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x.txt"), []byte("1\n2\n3\n"), 0o644))
		s.Mix.Sources = append(s.Mix.Sources, spec.Source{Name: name, Weight: 1_000_000, Dataset: dir})
	}
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{Log: discard})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	m, err := New(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: newPoint(t), Log: discard})
	require.NoError(t, err)
	a := newAgent(t)
	look := exec.Command("stat", filepath.Join(m.MountPoint(), "worker-0.txt"))
	require.NoError(t, look.Start())
	require.Contains(t, a.read(filepath.Join(m.MountPoint(), "status")), "the layout of the epoch of 68,719,476,736 records is being computed")
	require.Contains(t, a.read(filepath.Join(m.MountPoint(), "status.json")), `"laying_out": true`)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	m.End()
	require.Error(t, look.Wait(), "it has waited until the end")
	require.NoError(t, m.Unmount(ctx))
	require.NoError(t, m.Wait())
}
