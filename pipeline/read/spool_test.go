package read

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// newFetcher surveys a dataset and starts a fetcher.
func newFetcher(x chunkmap.Index, s storage.Storage, cfg Options) (*Fetcher, error) {
	v, err := newSurvey(x, s, cfg)
	if err != nil {
		return nil, err
	}
	return v.NewFetcher()
}

// spoolConfig configures a spool that has room for what an order needs.
func spoolConfig(t testing.TB, budget int64, o spec.Order) Options {
	t.Helper()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return Options{
		MemoryBytes: budget, ReadTimeout: 10 * time.Minute, PieceBytes: 16 << 10, PieceRecords: 32,
		Read: spec.ReadSpool, Order: o, Spool: SpoolOptions{Dir: readtest.DiskDir(t), Engine: engine},
	}
}

func newSpoolingFetcher(t testing.TB, d *readtest.Dataset, c Options, s storage.Storage) *Fetcher {
	t.Helper()
	c.Released = readtest.Poison
	f, err := newFetcher(d.Index, s, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		requireNothingLeft(t, f)
		require.Zero(t, f.Stats().OpenDecoders)
		entries, err := os.ReadDir(c.Spool.Dir)
		require.NoError(t, err)
		require.Empty(t, entries, "nothing is left of the spool")
	})
	return f
}

var (
	spoolNone      = spec.Order{Shuffle: spec.ShuffleNone, Lanes: 1}
	spoolReservoir = spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 3, SizeRecords: 90}
	spoolFull      = spec.Order{Shuffle: spec.ShuffleFull, Lanes: 1}
)

func TestSpoolYieldsSameBytes(t *testing.T) {
	for name, s := range readtest.Shapes() {
		if s.Codec == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			s.Shards = 6
			d := readtest.Make(t, s)
			for _, c := range []struct {
				name  string
				seq   readtest.List
				order spec.Order
			}{
				{"none", readtest.InOrder(d.Index), spoolNone},
				{"reservoir", readtest.ReservoirOrder(3, d.Index, 3, 90), spoolReservoir},
				{"full", readtest.RandomOrder(4, d.Index), spoolFull},
				{"full with room for two shards", readtest.RandomOrder(4, d.Index)[:60], spoolNone},
			} {
				if testing.Short() && c.name == "none" {
					continue // one reader: the race detector sees the same spool in any order
				}
				for _, budget := range budgets[:lessIfShort(3, 1)] {
					t.Run(fmt.Sprintf("%s/budget=%d", c.name, budget), func(t *testing.T) {
						f := newSpoolingFetcher(t, d, spoolConfig(t, budget, c.order), readtest.OpenStorage(t, d.Dir))
						require.Equal(t, "spool", f.Stats().Strategy)
						readEpochs(t, d, f, seqFor(c.seq, budget), 2)
					})
				}
			}
		})
	}
}

// Shards that are not compressed are read where they are, and each record about once.
func TestOnlyCompressedShardsOfMixtureAreSpooled(t *testing.T) {
	plain := readtest.Make(t, readtest.Shape{Shards: 8, Records: 400, MaxBytes: 4000})
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 8, Records: 400, MaxBytes: 4000})
	compressed, rest := int64(0), int64(0) // the same records, decoded
	for i := range d.Index.ShardTable {
		if i%2 == 0 {
			d.Index.ShardTable[i], d.Index.EntryTable[i] = plain.Index.ShardTable[i], plain.Index.EntryTable[i]
			b, err := os.ReadFile(filepath.Join(plain.Dir, fmt.Sprintf("shard-%03d", i)))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(d.Dir, fmt.Sprintf("shard-%03d", i)), b, 0o644))
			d.Index.ShardTable[i].Object = readtest.Listed(t, d.Dir, fmt.Sprintf("shard-%03d", i))
			rest += d.Index.ShardTable[i].DecodedBytes
		} else {
			compressed += diskcache.RoomBytes(d.Index.ShardTable[i].DecodedBytes)
		}
	}
	order := spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 3, SizeRecords: 1500}
	seq := readtest.ReservoirOrder(3, d.Index, 3, 1500)
	c := spoolConfig(t, 1<<20, order)
	c.Read = spec.ReadAuto
	f := newSpoolingFetcher(t, d, c, readtest.OpenStorage(t, d.Dir))
	require.Equal(t, "spool", f.Stats().Strategy)
	readEpochs(t, d, f, seq, 1)
	s := f.Stats()
	require.EqualValues(t, 4, s.Spool.Decoded)
	require.LessOrEqual(t, s.Spool.UsedBytes, compressed, "decoded bytes of compressed shards")
	require.Less(t, int64(s.BytesRead), 5*(rest+compressed), "not whole chunks for single records")
}

func TestSpoolOfOverlappingRecordsYieldsSameBytes(t *testing.T) {
	d := readtest.MakeOverlapping(t, 3, 300, 5000, 10, 3000)
	for _, budget := range []int64{1, 1 << 20} {
		f := newSpoolingFetcher(t, d, spoolConfig(t, budget, spoolFull), readtest.OpenStorage(t, d.Dir))
		readEpochs(t, d, f, readtest.RandomOrder(1, d.Index), 1)
	}
}

func TestConcurrentReadersOfSpool(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 8, Records: 110, MaxBytes: 900})
	g := readtest.ReservoirOrder(3, d.Index, 3, 90)
	for _, o := range []spec.Order{spoolNone, spoolReservoir, spoolFull} {
		f := newSpoolingFetcher(t, d, spoolConfig(t, 300<<10, o), readtest.OpenStorage(t, d.Dir))
		stopped := f.Open(g)
		var l Loan
		require.NoError(t, stopped.Read(context.Background(), 0, 1, &l))
		var wg sync.WaitGroup
		for w := range 4 {
			seq := g.Deal(w, 4)
			r := f.Open(seq)
			wg.Go(func() { readtest.ReadAll(t, d, r, seq, 1+w*9); r.Close() })
		}
		wg.Wait()
		require.Equal(t, string(d.Records[g[0]]), string(l.Records[0]), "a loan outlives all eviction")
		l.Release()
		stopped.Close()
	}
}

// The dataset is ten times the budget, and each shard is decoded once per epoch, or only once if
// the spool has room for all.
func TestSpoolDecodesEachShardOnce(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 24, Records: 400, MaxBytes: 1000}) // 4.8 MB
	for _, c := range []struct {
		name   string
		seq    func(epoch uint64) readtest.List
		order  spec.Order
		decode uint64 // in two epochs
	}{
		{"reservoir", func(e uint64) readtest.List { return readtest.ReservoirOrder(e, d.Index, 3, 90) }, spoolReservoir, 2*24 + 2},
		{"full", func(e uint64) readtest.List { return readtest.RandomOrder(e, d.Index) }, spoolFull, 24},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newSpoolingFetcher(t, d, spoolConfig(t, 480<<10, c.order), readtest.OpenStorage(t, d.Dir))
			for epoch := range uint64(2) {
				seq := c.seq(epoch)
				r := f.Open(seq)
				readtest.ReadAll(t, d, r, seq, 40)
				r.Close()
			}
			s := f.Stats().Spool
			require.NotNil(t, s)
			require.LessOrEqual(t, s.Decoded, c.decode)
			require.GreaterOrEqual(t, s.Decoded, uint64(24))
			require.LessOrEqual(t, s.UsedBytes, s.CapacityBytes)
		})
	}
}

func TestSpoolStaysWithinMemoryBudget(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 10, Records: 400, MaxBytes: 2000})
	const budget = 8 << 20
	f := newSpoolingFetcher(t, d, spoolConfig(t, budget, spoolFull), readtest.OpenStorage(t, d.Dir))
	g := readtest.RandomOrder(3, d.Index)
	const readers = 4
	var wg sync.WaitGroup
	for w := range readers {
		seq := g.Deal(w, readers)
		r := f.Open(seq)
		wg.Go(func() {
			defer r.Close()
			var l Loan
			for k := 0; k < len(seq); {
				if err := r.Read(context.Background(), uint64(k), 7, &l); err != nil {
					t.Error(err)
					return
				}
				if held := f.Stats().HeldBytes; held > budget+(2*readers+1)*f.o.Survey.Limits.SegmentBytes {
					t.Errorf("%d bytes are held", held)
				}
				k += len(l.Records)
				l.Release()
			}
		})
	}
	wg.Wait()
}

func TestImpossibleSpoolIsRefused(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 8, Records: 110, MaxBytes: 900})
	memory := memoryDir()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		name   string
		change func(*SpoolOptions)
		says   string
	}{
		{"too small a bound", func(s *SpoolOptions) { s.MaxBytes = 100 << 10 }, "--spool-max (100 KiB) is less than"},
		{"no directory", func(s *SpoolOptions) { s.Dir = "" }, "--spool-dir"},
		{"no directory can be made", func(s *SpoolOptions) { s.Dir = file + "/x" }, "--spool-dir"},
		{"memory", func(s *SpoolOptions) { s.Dir = memory }, "in memory (tmpfs)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := spoolConfig(t, 300<<10, spoolFull)
			if c.change(&config.Spool); c.name == "memory" && memory == "" {
				t.Skip("no tmpfs")
			}
			config.PieceBytes = 1 << 10
			for _, config.Read = range []spec.Read{spec.ReadSpool, spec.ReadAuto, spec.ReadGather} {
				_, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), config)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, fmt.Sprintf("--read %s: ", config.Read))
				require.ErrorContains(t, err, "--read scan needs none")
			}
			config.Read = spec.ReadScan
			f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), config)
			require.NoError(t, err, "a scan needs no spool")
			require.NoError(t, f.Close())
		})
	}
}

// memoryDir returns a directory in memory, of a limited size; "" if there is none.
func memoryDir() string {
	const dir = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Blocks == 0 {
		return ""
	}
	return dir
}

func TestShardChangedDuringSpoolingFailsOnlyItsRecords(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900})
	s := readtest.OpenStorage(t, d.Dir)
	s.Before = func(r *storage.Read) error {
		if r.Object.Path == "shard-001" {
			return storage.ErrChanged
		}
		return nil
	}
	f := newSpoolingFetcher(t, d, spoolConfig(t, 300<<10, spoolFull), s)
	for i, record := range readtest.RandomOrder(1, d.Index)[:60] {
		r := f.Open(readtest.List{record})
		var l Loan
		err := r.Read(context.Background(), 0, 1, &l)
		if record >= 110 && record < 220 {
			require.ErrorIs(t, err, storage.ErrChanged)
		} else if require.NoError(t, err, "%d", i); true {
			require.Equal(t, string(d.Records[record]), string(l.Records[0]))
		}
		l.Release()
		r.Close()
	}
}

func TestChecksumMismatchFailsWholeShard(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 110, MaxBytes: 900})
	path := filepath.Join(d.Dir, "shard-000")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw[len(raw)-6] ^= 1 // its CRC
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	d.Index.ShardTable[0].Object = readtest.Listed(t, d.Dir, "shard-000")
	f := newSpoolingFetcher(t, d, spoolConfig(t, 300<<10, spoolFull), readtest.OpenStorage(t, d.Dir))
	r := f.Open(readtest.List{109, 0})
	defer r.Close()
	var l Loan
	for k := range uint64(2) {
		require.Error(t, r.Read(context.Background(), k, 1, &l), "record %d of the sequence", k)
	}
}

func TestSpoolStalledByStorageTimesOut(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 900})
	s := readtest.OpenStorage(t, d.Dir)
	s.Hold()
	c := spoolConfig(t, 64<<20, spoolFull)
	c.ReadTimeout = 20 * time.Millisecond
	f := newSpoolingFetcher(t, d, c, s)
	var l Loan
	r := f.Open(readtest.List{0})
	defer r.Close()
	require.ErrorIs(t, r.Read(context.Background(), 0, 1, &l), ErrTimeout)
	s.Release()
	require.Eventually(t, func() bool {
		err := r.Read(context.Background(), 0, 1, &l)
		require.True(t, err == nil || errors.Is(err, ErrTimeout), "%v", err)
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, string(d.Records[0]), string(l.Records[0]))
	l.Release()
}

func TestAutoChoosesStrategyThatFits(t *testing.T) {
	countsInTurn(t)
	plain := readtest.Shape{Shards: 12, Records: 400, MaxBytes: 1000}
	gz := func(member int) readtest.Shape {
		return readtest.Shape{Codec: "gz", Shards: 12, Records: 400, MaxBytes: 1000, Member: member}
	}
	frames := func(size int) readtest.Shape {
		return readtest.Shape{Codec: "zst", Shards: 12, Records: 400, MaxBytes: 1000, MemberBytes: size}
	}
	for _, c := range []struct {
		name   string
		shape  readtest.Shape
		order  spec.Order
		budget int64
		want   spec.Read
		says   string
	}{
		{"plain, fits", readtest.Shape{Shards: 3, Records: 20, MaxBytes: 1000}, spoolFull, 1 << 20, spec.ReadScan, "no shard is compressed, and the dataset fits in memory"},
		{"plain, full", plain, spoolFull, 1 << 20, spec.ReadGather, "of records wait in the shuffle"},
		{"plain, front to back", plain, spoolNone, 1 << 20, spec.ReadScan, "front to back"},
		{"plain, the shuffle fits", plain, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 2, SizeRecords: 90}, 1 << 20, spec.ReadScan, "the shuffle's waiting records fit in memory"},
		{"plain, the shuffle does not", plain, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 2, SizeRecords: 1000}, 1 << 20, spec.ReadGather, "of records wait in the shuffle"},
		{"all fits", gz(0), spoolFull, 64 << 20, spec.ReadScan, "fit in memory"},
		{"full", gz(0), spoolFull, 1 << 20, spec.ReadSpool, "12 compressed shards have few"},
		{"reservoir, too little memory", gz(0), spoolReservoir, 1 << 20, spec.ReadSpool, "don't fit in memory in this order"},
		{"reservoir in little memory", readtest.Shape{Codec: "gz", Shards: 3, Records: 6000, MaxBytes: 1000}, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 1, SizeRecords: 90}, 4 << 20, spec.ReadScan, "buffer fits"},
		{"small shards", gz(0), spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 1, SizeRecords: 90}, 4 << 20, spec.ReadScan, "decoding can start at 12 places in the 12 compressed shards"},
		{"front to back", gz(0), spoolNone, 1 << 20, spec.ReadScan, "front to back"},
		{"entered often", gz(20), spoolFull, 1 << 20, spec.ReadScan, "decoding can start at 240 places in the 12 compressed shards, every 9"},
		{"entered often, too little memory", gz(20), spoolReservoir, 200 << 10, spec.ReadSpool, "have few gzip members"},
		{"entered often, enough memory", gz(20), spoolReservoir, 1 << 20, spec.ReadScan, "decoding can start at 240 places in the 12 compressed shards, every 9"},
		{"frames cut anywhere", frames(10_000), spoolReservoir, 1 << 20, spec.ReadScan, "decoding can start at 249 places in the 12 compressed shards, every 9.5 KiB (decoded)"},
		{"frames cut anywhere, too little memory", frames(10_000), spoolReservoir, 200 << 10, spec.ReadSpool, "have few gzip members"},
		{"frames too large for the memory", frames(190_000), spoolReservoir, 1 << 20, spec.ReadSpool, "have few gzip members"},
		{"frames cut anywhere, full", frames(10_000), spoolFull, 1 << 20, spec.ReadSpool, "have few gzip members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := readtest.Make(t, c.shape)
			config := spoolConfig(t, c.budget, c.order)
			config.Read = spec.ReadAuto
			f := newSpoolingFetcher(t, d, config, readtest.OpenStorage(t, d.Dir))
			require.Equal(t, string(c.want), f.Stats().Strategy)
			require.Contains(t, f.Stats().Reason, c.says)
		})
	}
}

func TestRefusedSpoolSuggestsFewerLanes(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 64, Records: 110, MaxBytes: 900})
	c := spoolConfig(t, 300<<10, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 16, SizeRecords: 32})
	c.Spool.MaxBytes = 100 << 10
	_, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), c)
	require.ErrorContains(t, err, "(--lanes 8 would need ")
	require.ErrorContains(t, err, ", --lanes 4 would need ")
}
