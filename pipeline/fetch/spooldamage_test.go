package fetch

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// failingEngine reads, and lets a test change what comes of it.
type failingEngine struct {
	uring.Engine
	after func(r *uring.Request, n int, err error) (int, error)
}

func (e *failingEngine) Submit(requests []*uring.Request) {
	changed := make([]*uring.Request, len(requests))
	for i, r := range requests {
		c := *r
		c.Done = func(n int, err error) { r.Done(e.after(r, n, err)) }
		changed[i] = &c
	}
	e.Engine.Submit(changed)
}

// what a disk may do to each read.
var diskFaults = map[string]func(r *uring.Request, n int, err error) (int, error){
	"zeros":             func(r *uring.Request, n int, err error) (int, error) { clear(r.Buf); return n, err },
	"a byte is another": func(r *uring.Request, n int, err error) (int, error) { r.Buf[n/2] ^= 1; return n, err },
	"EIO":               func(*uring.Request, int, error) (int, error) { return 0, unix.EIO },
	"short":             func(r *uring.Request, n int, err error) (int, error) { return n / 2, err },
}

// damageable are datasets whose blocks lie in every way beside pieces and records.
func damageable(t *testing.T) map[string]*fetchtest.Dataset {
	return map[string]*fetchtest.Dataset{
		"many pieces a block":     fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900}),
		"many blocks a piece":     fetchtest.Make(t, fetchtest.Shape{Codec: "zst", Shards: 2, Records: 4, MaxBytes: 300_000, SameSize: true}),
		"gaps before pieces":      fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 40, MaxBytes: 9000, GapBytes: 5000}),
		"a newline is missing":    fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 100, MaxBytes: 900, NoNewline: true}),
		"checksums of records":    fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 100, MaxBytes: 900, Checksummed: true}),
		"records overlap":         makeOverlapping(t, 2, 300, 5000, 10, 1<<30),
		"records overlap, larger": makeOverlapping(t, 1, 40, 150_000, 9000, 1<<30),
	}
}

// forgetPieces empties the memory.
func forgetPieces(f *Fetcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for piece := range f.pieces.len() {
		if e := f.slots.at(piece); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			f.slots.set(piece, nil)
		}
	}
}

// wholeInSpool waits until a shard is in the spool.
func wholeInSpool(t *testing.T, f *Fetcher, shard int) (s *spooled) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		s = f.spool.shards[shard]
		return s != nil && s.whole
	}, 90*time.Second, time.Millisecond)
	return s
}

func lendAnew(t *testing.T, d *fetchtest.Dataset, f *Fetcher, record uint64) {
	t.Helper()
	r := f.Open(fetchtest.List{record})
	defer r.Close()
	var l Loan
	require.NoError(t, r.Lend(context.Background(), 0, 1, &l))
	require.Equal(t, string(d.Records[record]), string(l.Records[0]))
	l.Release()
}

func TestAFlippedByteInAnyBlockOfTheSpoolIsNoticedAndDecodedAgain(t *testing.T) {
	for name, d := range damageable(t) {
		t.Run(name, func(t *testing.T) {
			f := newSpoolingFetcher(t, d, spoolConfig(t, 300<<10, spoolFull), fetchtest.OpenStorage(t, d.Dir))
			for shard, x := range d.Index.ShardTable {
				lendAnew(t, d, f, x.First)
				s := wholeInSpool(t, f, shard)
				for b := f.blockAt(shard, f.pieces.of(x.First), f.pieceStart(f.pieces.of(x.First))); b.off < x.DecodedBytes; b = f.after(b) {
					record, ok := recordIn(d, x, b)
					if !ok {
						continue // nothing of it is read but with others
					}
					flip(t, f, s, (b.off+b.end)/2)
					forgetPieces(f)
					before := f.Stats().Spool
					lendAnew(t, d, f, record)
					after := f.Stats().Spool
					require.Greater(t, after.DamagedPieces, before.DamagedPieces, "block [%d, %d)", b.off, b.end)
					require.Greater(t, after.DamagedShards, before.DamagedShards)
					s = wholeInSpool(t, f, shard)
					f.mu.Lock()
					clear(f.spool.losses.of)
					f.mu.Unlock()
				}
			}
			require.Zero(t, f.Stats().Errors)
			readEpochs(t, d, f, fetchtest.RandomOrder(4, d.Index), 1)
		})
	}
}

// recordIn is a record of which some lies in a block of a shard.
func recordIn(d *fetchtest.Dataset, x catalog.Shard, b sumBlock) (uint64, bool) {
	for r := x.First; r < x.First+x.Records; r++ {
		if e := d.Index.ExtentTable[r]; e.OffsetBytes < b.end && e.OffsetBytes+e.SizeBytes > b.off {
			return r, true
		}
	}
	return 0, false
}

// flip changes a byte of a shard in the spool's file.
func flip(t *testing.T, f *Fetcher, s *spooled, off int64) {
	t.Helper()
	require.NoError(t, eachPart(s.runs, off, 1, func(at, _ int64) error {
		var one [1]byte
		if _, err := f.spool.file.file.ReadAt(one[:], at); err != nil {
			return err
		}
		one[0] ^= 0x10
		_, err := f.spool.file.file.WriteAt(one[:], at)
		return err
	}))
}

// The records come all the same, each shard goes to the spool a second time and not
// a third, and one warning names the directory.
func TestADiskThatGivesNothingBackRightIsDoneWithout(t *testing.T) {
	for fault, after := range diskFaults {
		t.Run(fault, func(t *testing.T) {
			for name, d := range damageable(t) {
				t.Run(name, func(t *testing.T) {
					c := spoolConfig(t, 300<<10, spoolReservoir)
					var said bytes.Buffer
					c.Log = slog.New(slog.NewTextHandler(&said, nil))
					engine := c.Spool.Engine
					c.Spool.Engine = &failingEngine{engine, after}
					f := newSpoolingFetcher(t, d, c, fetchtest.OpenStorage(t, d.Dir))
					g := fetchtest.ReservoirOrder(3, d.Index, 3, 90)
					var wg sync.WaitGroup
					for w := range 3 {
						seq := g.Deal(w, 3)
						r := f.Open(seq)
						wg.Go(func() { fetchtest.ReadAll(t, d, r, seq, 7); r.Close() })
					}
					wg.Wait()
					require.NoError(t, f.Close(), "all has been said then")
					s := f.Stats()
					require.Zero(t, s.Errors)
					require.NotZero(t, s.Spool.DamagedPieces)
					shards := uint64(len(d.Index.ShardTable))
					require.LessOrEqual(t, s.Spool.DamagedShards, shards*spoolTries)
					require.LessOrEqual(t, s.Spool.Decoded, shards*spoolTries)
					require.Equal(t, 1, strings.Count(said.String(), "level=WARN msg=\"the spool"), said.String())
					require.Contains(t, said.String(), c.Spool.Dir)
				})
			}
		})
	}
}

func TestTheSpoolIsTriedAgainOnceALossIsForgotten(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 900})
	c := spoolConfig(t, 300<<10, spoolFull)
	engine := &failingEngine{c.Spool.Engine, diskFaults["zeros"]}
	c.Spool.Engine = engine
	f := newSpoolingFetcher(t, d, c, fetchtest.OpenStorage(t, d.Dir))
	lendAnew(t, d, f, 0) // the second time at once
	require.Equal(t, uint64(2), f.Stats().Spool.DamagedShards)
	forgetPieces(f)
	lendAnew(t, d, f, 0)
	require.Equal(t, uint64(2), f.Stats().Spool.DamagedShards, "it is read without the spool")

	f.mu.Lock()
	require.Equal(t, loss{2, f.spool.losses.of[0].until}, f.spool.losses.of[0])
	require.Greater(t, f.spool.losses.of[0].until, f.now())
	f.spool.losses.of[0] = loss{2, f.now()} // ten minutes later
	f.mu.Unlock()
	engine.after = func(_ *uring.Request, n int, err error) (int, error) { return n, err }
	forgetPieces(f)
	lendAnew(t, d, f, 0)
	require.Equal(t, uint64(2), f.Stats().Spool.DamagedShards)
	wholeInSpool(t, f, 0)
}

// What decoding finds when it is done again is said, not hidden.
func TestAShardThatIsGoneWhenTheSpoolLosesItIsAnError(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 900})
	s := fetchtest.OpenStorage(t, d.Dir)
	f := newSpoolingFetcher(t, d, spoolConfig(t, 300<<10, spoolFull), s)
	lendAnew(t, d, f, 0)
	flip(t, f, wholeInSpool(t, f, 0), 0)
	forgetPieces(f)
	s.Before = func(*storage.Read) error { return storage.ErrChanged }
	r := f.Open(fetchtest.List{0})
	defer r.Close()
	var l Loan
	require.ErrorIs(t, r.Lend(context.Background(), 0, 1, &l), storage.ErrChanged)
}

func TestTheTablesOfASpoolAreOfTheBudget(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 4, Records: 2000, MaxBytes: 90})
	c := spoolConfig(t, 300<<10, spoolFull)
	f := newSpoolingFetcher(t, d, c, fetchtest.OpenStorage(t, d.Dir))
	before := f.cache.budget
	for shard, x := range d.Index.ShardTable {
		lendAnew(t, d, f, x.First)
		wholeInSpool(t, f, shard)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	want := int64(0)
	for _, s := range f.spool.order {
		want += s.tableBytes()
	}
	require.NotZero(t, want)
	require.Equal(t, want, f.spool.tables)
	require.Equal(t, before-want-f.decoders.held, f.cache.budget)
	for len(f.spool.order) > 0 {
		f.dropSpooled(f.spool.order[0])
	}
	require.Zero(t, f.spool.tables)
	require.Zero(t, f.spool.file.used())
}

// Blocks cover a shard from its first piece on, none is checked by another's sum, and
// pieces begin at blocks.
func TestBlocksOfAShardHaveAPlaceEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := &fetchtest.Index{}
		off, end := rapid.Int64Range(0, 2*blockBytes).Draw(t, "head"), int64(0)
		for r := range rapid.IntRange(1, 40).Draw(t, "records") {
			off += rapid.SampledFrom([]int64{0, 1, 100, blockBytes - 1, blockBytes, blockBytes + 1, 5*blockBytes + 7}).Draw(t, "stride")
			size := rapid.SampledFrom([]int64{0, 1, 100, blockBytes, 3 * blockBytes}).Draw(t, "size")
			x.ExtentTable = append(x.ExtentTable, catalog.Extent{Ordinal: uint64(r), OffsetBytes: off, SizeBytes: size})
			end = max(end, off+size)
		}
		end += rapid.Int64Range(0, 2*blockBytes).Draw(t, "behind")
		x.ShardTable = []catalog.Shard{{Records: x.Records(), DecodedBytes: end}}
		pieces, err := newPieceTable(x.PieceStarts(blockBytes, 3, 0), x.Records())
		require.NoError(t, err)
		f := &Fetcher{index: x, pieces: pieces}
		seen, starts, at := map[int]bool{}, map[int64]bool{}, f.pieceStart(0)
		for b := f.blockAt(0, 0, at); b.off < end; b = f.after(b) {
			require.Equal(t, at, b.off)
			require.Greater(t, b.end, b.off)
			require.LessOrEqual(t, b.end-b.off, int64(blockBytes))
			require.False(t, seen[b.sum])
			require.Less(t, b.sum, f.blocks(0))
			seen[b.sum], starts[b.off] = true, true
			require.Equal(t, b.sum, f.blockAt(0, b.piece, b.off).sum)
			require.Equal(t, b.sum, f.blockAt(0, 0, b.end-1).sum)
			at = b.end
		}
		require.Equal(t, end, at)
		for piece := range pieces.len() {
			require.True(t, starts[f.pieceStart(piece)] || f.pieceStart(piece) == end)
		}
	})
}
