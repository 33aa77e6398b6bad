package read

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestAutoGathersDatasetsBeyondMemoryIfReadsAreFree(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 12, Records: 400, MaxBytes: 1000})
	config := spoolConfig(t, 1<<20, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 2, SizeRecords: 90})
	config.Read = spec.ReadAuto
	for kind, want := range map[storage.Kind]spec.Read{storage.KindSSD: spec.ReadGather, storage.KindDisk: spec.ReadScan} {
		config.Profile = storage.DefaultProfile(kind)
		config.Profile.GapBytes = 0
		f := newSpoolingFetcher(t, d, config, readtest.OpenStorage(t, d.Dir))
		require.Equal(t, string(want), f.Stats().Strategy)
	}
}
