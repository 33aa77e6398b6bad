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
			require.InEpsilon(t, counted.Reads.Load()-before, reads.Reads, 0.1)
			require.InEpsilon(t, counted.Bytes.Load()-beforeBytes, reads.ReadBytes, 0.1)
			if decoded > 0 || c.shape.Codec != "" {
				require.InEpsilon(t, d.Status().Fetch.DecodedBytes, decoded, 0.1)
			}
		})
	}
}

// A plan of arrays that are read together counts the reads of their files, whose rows are read
// together or, if they are long, one by one.
func TestPlansOfArraysReadTogetherAreWhatAStreamThenReads(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count")
	}
	const mib = 1 << 20
	for _, rowBytes := range []int64{3000, 40_000} {
		dir := makeArrays(t, rowBytes, 30*mib)
		for _, memory := range []int64{12 * mib, 64 * mib} {
			for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleFull} {
				t.Run(fmt.Sprintf("rows of %d bytes, %d MiB, shuffle %s", rowBytes, memory/mib, shuffle), func(t *testing.T) {
					s := spec.Default()
					s.Dataset, s.IndexDir, s.Cache.Off, s.Direct = dir, t.TempDir(), true, spec.DirectOn
					joinArrays(&s)
					s.Order.Shuffle, s.Order.SizeRecords, s.MemoryBytes, s.Deal.Workers = shuffle, 1024, memory, 1
					ratios := map[string][]float64{}
					planAndRead(t, s, true, nil, ratios)
					require.InEpsilon(t, 1, ratios["requests"][0], 0.05)
					require.InEpsilon(t, 1, ratios["bytes"][0], 0.05)
				})
			}
		}
	}
}

// A plan of short records in little memory is what is read of them, whatever sizes a program reads
// in, and in whatever order the kernel asks for that: which records are read together depends on
// the order and on --memory alone. Measured: within 0.5 % of the reads, and 4 % of the bytes.
func TestWhatIsReadDoesNotDependOnReadSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count")
	}
	const mib = 1 << 20
	dir, index := makeShards(t, synthetic.Shape{Format: "jsonl", RecordBytes: 400}, 8, 4*mib/400), t.TempDir()
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleFull} {
		for _, size := range []int{4 << 10, 100_000, 128 << 10, mib} {
			for _, apart := range []int{1, 2, 5} {
				if apart*size > mib {
					continue // more than is kept behind a reader
				}
				t.Run(fmt.Sprintf("shuffle %s, %d bytes, every %d first", shuffle, size, apart), func(t *testing.T) {
					s := spec.Default()
					s.Dataset, s.IndexDir, s.Cache.Off = dir, index, true
					s.Order.Shuffle, s.Order.SizeRecords, s.Order.Lanes = shuffle, 32<<10, 8
					s.MemoryBytes, s.Read, s.Deal.Workers = 16*mib, spec.ReadGather, 1
					var counted readtest.CountedStorage
					d, err := Open(t.Context(), s, Options{Faults: func(below storage.Storage) storage.Storage { counted.Storage = below; return &counted }})
					require.NoError(t, err)
					defer func() { require.NoError(t, d.Close()) }()
					plan := forecast(t, d, 0, 1<<60).Storages[0].Gather
					before, beforeBytes := counted.Reads.Load(), counted.Bytes.Load()
					set, err := d.Set(t.Context(), 0, nil, s.Deal)
					require.NoError(t, err)
					readOutOfOrder(t, set, size, apart)
					require.InEpsilon(t, counted.Reads.Load()-before, plan.Reads, 0.1)
					require.InEpsilon(t, counted.Bytes.Load()-beforeBytes, plan.ReadBytes, 0.1)
				})
			}
		}
	}
}

// readOutOfOrder reads a worker's file in reads of n bytes. Of each few of them that follow each
// other, the last is made first, as those that the kernel makes ahead of a program may be.
func readOutOfOrder(t testing.TB, s *stream.Set, n, few int) {
	h := s.Open(0, stream.Data)
	defer h.Close()
	size, err := s.SizeBytes(t.Context(), 0, stream.Data)
	require.NoError(t, err)
	var r stream.Reply
	for at := int64(0); at < size; at += int64(few * n) {
		for i := range few {
			require.NoError(t, h.ReadAt(t.Context(), &r, at+int64((i+few-1)%few*n), n))
			r.Release()
		}
	}
}

// A plan of compressed shards that are decoded to the disk cache looks at the cache and changes
// nothing: it makes no directory, and counts what the cache lacks.
func TestPlansCountWhatTheDiskCacheLacks(t *testing.T) {
	const mib = 1 << 20
	s := spec.Default()
	s.Dataset, s.IndexDir, s.Cache.Dir = makeShards(t, synthetic.Shape{Format: "jsonl", RecordBytes: 2000, Codec: "gz"}, 24, mib/2000), t.TempDir(), filepath.Join(readtest.DiskDir(t), "cache")
	s.Cache.ReserveBytes = 0 // however full the disk is
	s.Order.Shuffle, s.Order.SizeRecords, s.Order.Lanes = spec.ShuffleReservoir, 2048, 2
	s.MemoryBytes, s.Deal.Workers, s.SpoolDir = 4*mib, 1, readtest.DiskDir(t)
	plan := func() StorageForecast {
		d, err := Open(t.Context(), s, Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		return forecast(t, d, 0, 1<<60).Storages[0]
	}
	run := func(bytes int) Status {
		d, err := Open(t.Context(), s, Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		set, err := d.Set(t.Context(), 0, nil, s.Deal)
		require.NoError(t, err)
		h := set.Open(0, stream.Data)
		defer h.Close()
		var r stream.Reply
		for at := 0; at < bytes; at += r.Len() {
			r.Release()
			require.NoError(t, h.ReadAt(t.Context(), &r, int64(at), mib))
			if r.Len() == 0 {
				break
			}
		}
		r.Release()
		return d.Status()
	}

	x := plan()
	require.Equal(t, spec.ReadSpool, x.Strategy, x.Reason)
	require.EqualValues(t, 24, x.Spool.Shards)
	require.NoDirExists(t, s.Cache.Dir)

	begun := run(mib).Fetch.Spool.Decoded
	require.Positive(t, begun)
	require.Less(t, begun, uint64(24))
	before := treeOf(t, s.Cache.Dir)
	x = plan()
	require.Equal(t, before, treeOf(t, s.Cache.Dir))
	require.Equal(t, spec.ReadSpool, x.Strategy, x.Reason)
	rest := run(1 << 30).Fetch
	require.Equal(t, rest.Spool.Decoded, x.Spool.Shards)
	require.InEpsilon(t, rest.DecodedBytes, x.Spool.DecodedBytes, 0.01)

	before = treeOf(t, s.Cache.Dir)
	x = plan()
	require.Equal(t, before, treeOf(t, s.Cache.Dir))
	require.NotEqual(t, spec.ReadSpool, x.Strategy, x.Reason)
	require.Contains(t, x.Reason, "in the disk cache, decoded")
	require.Zero(t, x.Scan.Compressed)
}

// treeOf returns the names of what is below a directory, with sizes and times of changes.
func treeOf(t *testing.T, dir string) (all []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		require.NoError(t, err)
		x, err := e.Info()
		require.NoError(t, err)
		all = append(all, fmt.Sprint(path, x.Size(), x.ModTime()))
		return nil
	}))
	return all
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
