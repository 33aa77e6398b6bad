package fs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	require.Contains(t, readme, "Epoch 1 begins when a program opens a file")
	require.Contains(t, readme, "lsiofs next "+s.dir+" --wait")
	require.NotContains(t, readme, "epoch-7")
	require.NotContains(t, readme, "{{")
	s.must(`echo '{"epoch": 1}' > checkpoint`)
	readme = s.must("cat README")
	require.Contains(t, readme, "Epoch 2 begins")
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
