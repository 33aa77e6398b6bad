package scan

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// failingEngine reads, and lets a test change the results.
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

// diskFaults are what a disk may do to each read.
var diskFaults = map[string]func(r *uring.Request, n int, err error) (int, error){
	"zeros":             func(r *uring.Request, n int, err error) (int, error) { clear(r.Buf); return n, err },
	"a byte is another": func(r *uring.Request, n int, err error) (int, error) { r.Buf[n/2] ^= 1; return n, err },
	"EIO":               func(*uring.Request, int, error) (int, error) { return 0, unix.EIO },
	"short":             func(r *uring.Request, n int, err error) (int, error) { return n / 2, err },
}

// damageable returns datasets whose blocks have all kinds of alignments with pieces and records.
func damageable(t *testing.T) map[string]*readtest.Dataset {
	return map[string]*readtest.Dataset{
		"many pieces a block":     readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 110, MaxBytes: 900}),
		"many blocks a piece":     readtest.Make(t, readtest.Shape{Codec: "zst", Shards: 2, Records: 4, MaxBytes: 300_000, SameSize: true}),
		"gaps before pieces":      readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 40, MaxBytes: 9000, GapBytes: 5000}),
		"a newline is missing":    readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 100, MaxBytes: 900, NoNewline: true}),
		"checksums of records":    readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 100, MaxBytes: 900, Checksummed: true}),
		"records overlap":         readtest.MakeOverlapping(t, 2, 300, 5000, 10, 1<<30),
		"records overlap, larger": readtest.MakeOverlapping(t, 1, 40, 150_000, 9000, 1<<30),
	}
}

// forgetPieces empties the memory.
func forgetPieces(sc *testScanner) {
	sc.Scanner.mu.Lock()
	defer sc.Scanner.mu.Unlock()
	for piece := range sc.pieces.Len() {
		if e := sc.slots.at(piece); e != nil {
			e.mem.Live.Add(-e.liveBytes())
			sc.slots.set(piece, nil)
		}
	}
}

// wholeInSpool waits until a shard is in the spool.
func wholeInSpool(t *testing.T, sc *testScanner, shard int) (s *decode.Place) {
	t.Helper()
	require.Eventually(t, func() bool {
		var whole bool
		s, whole = sc.spool.Find(shard)
		return whole
	}, 10*time.Minute, time.Millisecond)
	return s
}

func lendAnew(t *testing.T, d *readtest.Dataset, sc *testScanner, record uint64) {
	t.Helper()
	r := sc.Open(readtest.List{record})
	defer r.Close()
	var l budget.Records
	require.NoError(t, r.Read(context.Background(), 0, 1, &l))
	require.Equal(t, string(d.Records[record]), string(l.Records[0]))
	l.Release()
}

func TestAFlippedByteInAnyBlockOfTheSpoolIsNoticedAndDecodedAgain(t *testing.T) {
	for name, d := range damageable(t) {
		t.Run(name, func(t *testing.T) {
			sc := newScanner(t, spoolConfig(t, d, 300<<10, spoolFull, readtest.OpenStorage(t, d.Dir)))
			for shard, x := range d.Index.ShardTable {
				lendAnew(t, d, sc, x.First)
				s := wholeInSpool(t, sc, shard)
				for from := int64(0); from < x.DecodedBytes; from += stride(x.DecodedBytes) {
					to := min(from+page, x.DecodedBytes)
					record, ok := recordIn(d, x, from, to)
					if !ok {
						continue // every record of it is read together with others
					}
					flip(t, s, (from+to)/2)
					forgetPieces(sc)
					before := sc.Stats().Spool
					lendAnew(t, d, sc, record)
					after := sc.Stats().Spool
					require.Greater(t, after.DamagedPieces, before.DamagedPieces, "block [%d, %d)", from, to)
					require.Greater(t, after.DamagedShards, before.DamagedShards)
					s = wholeInSpool(t, sc, shard)
					sc.spool.ForgetLosses()
				}
			}
			require.Empty(t, sc.errors())
			readEpochs(t, d, sc, readtest.RandomOrder(4, d.Index), 1)
		})
	}
}

// page is the unit of checksums on the shelf.
const page = 4096

// stride skips pages of large shards: about 20 pages of each shard are tested.
func stride(decodedBytes int64) int64 { return max(1, decodedBytes/(20*page)) * page }

// recordIn returns a record that overlaps a block of a shard.
func recordIn(d *readtest.Dataset, x catalog.Shard, from, to int64) (uint64, bool) {
	for r := x.First; r < x.First+x.Records; r++ {
		if e := d.Index.ExtentTable[r]; e.OffsetBytes < to && e.OffsetBytes+e.SizeBytes > from {
			return r, true
		}
	}
	return 0, false
}

// flip changes a byte of a shard in the spool's file.
func flip(t *testing.T, s *decode.Place, off int64) {
	t.Helper()
	s.Decoded().EachPlace(off, 1, func(fd int, at, _ int64) {
		var one [1]byte
		_, err := unix.Pread(fd, one[:], at)
		require.NoError(t, err)
		one[0] ^= 0x10
		_, err = unix.Pwrite(fd, one[:], at)
		require.NoError(t, err)
	})
}

// All records arrive nevertheless, each shard goes to the spool a second time and not a third, and
// one warning names the directory.
func TestADiskThatGivesNothingBackRightIsDoneWithout(t *testing.T) {
	for fault, after := range diskFaults {
		t.Run(fault, func(t *testing.T) {
			for name, d := range damageable(t) {
				t.Run(name, func(t *testing.T) {
					c := configFor(t, d, settings{memory: 300 << 10, read: spec.ReadSpool, order: spoolReservoir, disk: after}, readtest.OpenStorage(t, d.Dir))
					var said bytes.Buffer
					c.Log = slog.New(slog.NewTextHandler(&said, nil))
					began := time.Now()
					sc := newScanner(t, c)
					g := readtest.ReservoirOrder(3, d.Index, 3, 90)
					var wg sync.WaitGroup
					for w := range 3 {
						seq := g.Deal(w, 3)
						r := sc.Open(seq)
						wg.Go(func() { readtest.ReadAll(t, d, r, seq, 7); r.Close() })
					}
					wg.Wait()
					require.NoError(t, sc.Close(), "all has been said then")
					s := sc.Stats()
					require.Empty(t, sc.errors())
					require.NotZero(t, s.Spool.DamagedPieces)
					shards := uint64(len(d.Index.ShardTable))
					require.LessOrEqual(t, s.Spool.DamagedShards, shards*decode.Tries)
					require.LessOrEqual(t, s.Spool.Decoded, shards*decode.Tries)
					warnings := strings.Count(said.String(), "level=WARN msg=\"the spool")
					require.Positive(t, warnings)
					require.LessOrEqual(t, warnings, 1+int(time.Since(began)/time.Minute), "one a minute: %s", said.String())
					require.Contains(t, said.String(), sc.spool.Stats().Dir)
				})
			}
		})
	}
}

// Waiters read the clock of the decoder that makes a load, which may be another one by then: with
// the race detector this shows that they need no lock.
func TestTimedOutReadersGetRecordsAfterSpoolLoss(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 9000})
	for range 10 {
		c := configFor(t, d, settings{memory: 300 << 10, read: spec.ReadSpool, order: spoolFull, disk: diskFaults["zeros"]}, readtest.OpenStorage(t, d.Dir))
		c.ReadTimeout = 3 * time.Millisecond
		sc := newScanner(t, c)
		var wg sync.WaitGroup
		for w := range 4 {
			record := uint64(w * 50)
			r := sc.Open(readtest.List{record})
			wg.Go(func() {
				defer r.Close()
				var l budget.Records
				err := r.Read(t.Context(), 0, 1, &l)
				for errors.Is(err, options.ErrTimeout) {
					err = r.Read(t.Context(), 0, 1, &l)
				}
				if err != nil || string(l.Records[0]) != string(d.Records[record]) {
					t.Errorf("record %d: %v", record, err)
				}
				l.Release()
			})
		}
		wg.Wait()
		require.NoError(t, sc.Close())
	}
}

func TestSpoolIsRetriedOnceLossExpires(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 900})
	var works atomic.Bool
	disk := func(r *uring.Request, n int, err error) (int, error) {
		if works.Load() {
			return n, err
		}
		return diskFaults["zeros"](r, n, err)
	}
	sc := newScanner(t, configFor(t, d, settings{memory: 300 << 10, read: spec.ReadSpool, order: spoolFull, disk: disk}, readtest.OpenStorage(t, d.Dir)))
	lendAnew(t, d, sc, 0) // at once, the second time
	require.Equal(t, uint64(2), sc.Stats().Spool.DamagedShards)
	forgetPieces(sc)
	lendAnew(t, d, sc, 0)
	require.Equal(t, uint64(2), sc.Stats().Spool.DamagedShards, "it is read without the spool")

	sc.spool.ForgetLosses() // as after ten minutes
	works.Store(true)
	forgetPieces(sc)
	lendAnew(t, d, sc, 0)
	require.Equal(t, uint64(2), sc.Stats().Spool.DamagedShards)
	wholeInSpool(t, sc, 0)
}

// An error of decoding a shard again is reported, not hidden.
func TestShardDeletedBeforeSpoolLossIsAnError(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 110, MaxBytes: 900})
	s := readtest.OpenStorage(t, d.Dir)
	sc := newScanner(t, spoolConfig(t, d, 300<<10, spoolFull, s))
	lendAnew(t, d, sc, 0)
	flip(t, wholeInSpool(t, sc, 0), 0)
	forgetPieces(sc)
	s.Before = func(*storage.Read) error { return storage.ErrChanged }
	r := sc.Open(readtest.List{0})
	defer r.Close()
	var l budget.Records
	require.ErrorIs(t, r.Read(context.Background(), 0, 1, &l), storage.ErrChanged)
}

func TestSpoolTablesCountTowardsBudget(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 4, Records: 2000, MaxBytes: 90})
	c := spoolConfig(t, d, 300<<10, spoolFull, readtest.OpenStorage(t, d.Dir))
	sc := newScanner(t, c)
	before := sc.budget.Rest()
	for shard, x := range d.Index.ShardTable {
		lendAnew(t, d, sc, x.First)
		wholeInSpool(t, sc, shard)
	}
	tables := sc.spool.Stats().TableBytes
	require.NotZero(t, tables)
	require.Equal(t, before-tables-sc.decoders.Stats().HeldBytes, sc.budget.Rest())
}
