package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// makeShards writes shards of synthetic records.
func makeShards(t testing.TB, s synthetic.Shape, shards int, records uint64) string {
	dir := t.TempDir()
	for i := range shards {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("s%03d%s", i, s.Extension())))
		require.NoError(t, err)
		require.NoError(t, s.WriteShard(f, uint64(i)*records, records, nil))
		require.NoError(t, f.Close())
	}
	return dir
}

// A plan of an epoch is what reading it through a stream then takes of the dataset's storage: for
// each strategy, of real shards, with memory that holds the dataset and with little of it.
func TestPlansAreWhatAStreamThenReads(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count")
	}
	const mib = 1 << 20
	for _, c := range []struct {
		shape    synthetic.Shape
		memory   int64
		shuffle  spec.Shuffle
		workers  uint64
		read     spec.Read
		strategy spec.Read
	}{
		{synthetic.Shape{Format: "tar", RecordBytes: 6000}, 256 * mib, spec.ShuffleReservoir, 1, spec.ReadAuto, spec.ReadScan},
		{synthetic.Shape{Format: "tar", RecordBytes: 6000}, 16 * mib, spec.ShuffleReservoir, 1, spec.ReadAuto, spec.ReadGather},
		{synthetic.Shape{Format: "tar", RecordBytes: 6000}, 16 * mib, spec.ShuffleFull, 1, spec.ReadAuto, spec.ReadGather},
		{synthetic.Shape{Format: "tar", RecordBytes: 6000}, 16 * mib, spec.ShuffleReservoir, 3, spec.ReadAuto, spec.ReadGather},
		{synthetic.Shape{Format: "jsonl", RecordBytes: 2000}, 256 * mib, spec.ShuffleFull, 3, spec.ReadAuto, spec.ReadScan},
		{synthetic.Shape{Format: "jsonl", RecordBytes: 2000}, 32 * mib, spec.ShuffleFull, 1, spec.ReadAuto, spec.ReadGather},
		{synthetic.Shape{Format: "jsonl", RecordBytes: 2000}, 32 * mib, spec.ShuffleNone, 1, spec.ReadAuto, spec.ReadScan},
		{synthetic.Shape{Format: "jsonl", RecordBytes: 2000, Codec: "gz"}, 256 * mib, spec.ShuffleReservoir, 1, spec.ReadAuto, spec.ReadScan},
		{synthetic.Shape{Format: "jsonl", RecordBytes: 2000, Codec: "gz"}, 16 * mib, spec.ShuffleReservoir, 1, spec.ReadAuto, spec.ReadSpool},
		{synthetic.Shape{Format: "tar", RecordBytes: 6000, Codec: "zst"}, 16 * mib, spec.ShuffleFull, 1, spec.ReadAuto, spec.ReadSpool},
		{synthetic.Shape{Format: "tar", RecordBytes: 6000, Codec: "zst"}, 256 * mib, spec.ShuffleReservoir, 1, spec.ReadAuto, spec.ReadScan},
	} {
		name := fmt.Sprintf("%s%s, shuffle %s, %d MiB, %d workers, %s", c.shape.Format, c.shape.Codec, c.shuffle, c.memory/mib, c.workers, c.strategy)
		t.Run(name, func(t *testing.T) {
			s := spec.Default()
			s.Dataset, s.IndexDir, s.Cache.Off = makeShards(t, c.shape, 12, 4*mib/uint64(c.shape.RecordBytes)), t.TempDir(), true
			s.Order.Shuffle, s.Order.SizeRecords, s.Order.Lanes = c.shuffle, 4096, 8
			s.MemoryBytes, s.Read, s.Deal.Workers, s.SpoolDir = c.memory, c.read, c.workers, readtest.DiskDir(t)
			var counted readtest.CountedStorage // which can't map: all comes by reads
			d, err := Open(context.Background(), s, Options{Faults: func(below storage.Storage) storage.Storage { counted.Storage = below; return &counted }})
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			before, beforeBytes := counted.Reads.Load(), counted.Bytes.Load()
			worker := c.workers - 1
			x := forecast(t, d, worker, 1<<60).Storages[0]
			require.Equal(t, c.strategy, x.Strategy, x.Reason)
			require.Equal(t, before, counted.Reads.Load(), "a plan reads nothing")
			reads, decoded := x.Scan.ReadCounts, x.Scan.DecodedBytes
			switch c.strategy {
			case spec.ReadGather:
				reads = x.Gather.ReadCounts
			case spec.ReadSpool:
				reads, decoded = x.Spool.ReadCounts, x.Spool.DecodedBytes
			}
			set, err := d.Set(t.Context(), 0, nil, s.Deal)
			require.NoError(t, err)
			readFile(t, set, worker, stream.Data, 1<<20)
			within := 0.1
			if c.strategy == spec.ReadGather {
				within = 0.2 // what is read together in little memory depends on when reads end: 4 % on a quiet machine
			}
			require.InEpsilon(t, counted.Reads.Load()-before, reads.Reads, within)
			require.InEpsilon(t, counted.Bytes.Load()-beforeBytes, reads.ReadBytes, within)
			if decoded > 0 || c.shape.Codec != "" {
				require.InEpsilon(t, d.Status().Fetch.DecodedBytes, decoded, 0.1)
			}
		})
	}
}

// What is mapped, where the page cache holds a dataset, is what a plan says is read.
func TestPlansAreWhatIsMapped(t *testing.T) {
	s := spec.Default()
	s.Dataset, s.IndexDir, s.Cache.Off = makeShards(t, synthetic.Shape{Format: "tar", RecordBytes: 6000}, 4, 500), t.TempDir(), true
	s.Deal.Workers, s.Read = 1, spec.ReadScan
	d := open(t, s)
	plan := forecast(t, d, 0, 1<<60).Storages[0].Scan
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	readFile(t, set, 0, stream.Data, 1<<20)
	x := d.Status().Fetch
	require.InEpsilon(t, plan.ReadBytes, x.MappedBytes+int64(x.BytesRead), 0.1)
}
