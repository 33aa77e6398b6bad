package read

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

var faultShapes = map[string]readtest.Shape{
	"plain":        {Shards: 2, Records: 60, MaxBytes: 2000, Checksummed: true},
	"gz":           {Codec: "gz", Shards: 2, Records: 60, MaxBytes: 2000},
	"zst, members": {Codec: "zst", Shards: 2, Records: 60, MaxBytes: 2000, Member: 7},
	"gathered":     {Read: spec.ReadGather, Shards: 2, Records: 60, MaxBytes: 2000, Checksummed: true},
}

// faultBudget makes plain shards be dropped and read again, and leaves one decoder to each of the
// others.
func faultBudget(s readtest.Shape) int64 {
	if s.Codec == "" {
		return 100 << 10
	}
	return 4 << 20
}

// readWithErrors reads a sequence to its end. Records that fail are asked for again, and passed to
// failed.
func readWithErrors(t *testing.T, ctx func() context.Context, d *readtest.Dataset, r *Reader, seq readtest.List, failed func(k int, err error)) {
	var l Loan
	for k := 0; k < len(seq); {
		if err := r.Read(ctx(), uint64(k), 5, &l); err != nil {
			require.Empty(t, l.Records, "a failed call lends nothing")
			failed(k, err)
			continue
		}
		for i, b := range l.Records {
			require.Equal(t, string(d.Records[seq[k+i]]), string(b))
		}
		k += len(l.Records)
		l.Release()
	}
}

func TestFailedReadSurfacesAndNextCallWorks(t *testing.T) {
	for name, s := range faultShapes {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			seq := readtest.ReservoirOrder(1, d.Index, 2, 20)
			// A read ahead that fails before a reader waits for it is repeated by the reader that
			// does: its error is visible only in Stats.
			told := 0
			for n := int64(0); ; n++ {
				store := readtest.OpenStorage(t, d.Dir)
				nth, injected := faulty.Nth(n), atomic.Bool{}
				store.Before = func(r *storage.Read) error {
					err := nth(r)
					if err != nil {
						injected.Store(true)
					}
					return err
				}
				f := newFetcherOver(t, d, faultBudget(s), store)
				r := f.Open(seq)
				readWithErrors(t, context.Background, d, r, seq, func(k int, err error) {
					record, ok := errors.AsType[*RecordError](err)
					require.True(t, ok, "%v", err)
					require.ErrorIs(t, err, faulty.ErrInjected)
					x := d.Index.ExtentTable[seq[k]]
					require.Equal(t, d.Index.ShardTable[x.Shard].Object.Path, record.Shard)
					require.Equal(t, x.Ordinal, record.Ordinal)
					require.Equal(t, x.OffsetBytes, record.OffsetBytes)
				})
				r.Close()
				if !injected.Load() {
					break
				}
				if len(f.Stats().LastErrors) > 0 {
					told++
				} else {
					require.NotEmpty(t, s.Codec, "read %d: only a decoder reads ahead what it may not come to need", n)
				}
				require.NoError(t, f.Close())
			}
			require.Positive(t, told)
		})
	}
}

func TestCallIsCancellableAtEveryRead(t *testing.T) {
	for name, s := range faultShapes {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			seq := readtest.ReservoirOrder(1, d.Index, 2, 20)
			for n := int64(0); ; n++ {
				store := readtest.OpenStorage(t, d.Dir)
				ctx, cancel := context.WithCancel(context.Background())
				nth := faulty.Nth(n)
				store.Before = func(r *storage.Read) error {
					if nth(r) != nil {
						cancel()
					}
					return nil
				}
				f := newFetcherOver(t, d, faultBudget(s), store)
				r := f.Open(seq)
				cancelled := ctx.Err() != nil
				readWithErrors(t, func() context.Context {
					if cancelled {
						return context.Background()
					}
					return ctx
				}, d, r, seq, func(k int, err error) {
					require.Equal(t, context.Canceled, err)
					cancelled = true
				})
				r.Close()
				over := ctx.Err() == nil
				cancel()
				if over {
					break
				}
				require.NoError(t, f.Close())
			}
		})
	}
}

// stalling holds the reads of some objects until it is told to release them.
type stalling struct {
	storage.Storage
	mu    sync.Mutex
	match func(*storage.Read) bool
	held  []*storage.Read
	came  chan struct{} // closed at the first read that is held
}

func (s *stalling) Caps() storage.Caps { return storage.Caps{} }

func (s *stalling) Submit(reads []*storage.Read) {
	s.mu.Lock()
	var rest []*storage.Read
	for _, r := range reads {
		if s.match == nil || !s.match(r) {
			rest = append(rest, r)
			continue
		}
		if s.held = append(s.held, r); len(s.held) == 1 {
			close(s.came)
		}
	}
	s.mu.Unlock()
	s.Storage.Submit(rest)
}

func (s *stalling) letGo() {
	s.mu.Lock()
	held := s.held
	s.held, s.match = nil, nil
	s.mu.Unlock()
	s.Storage.Submit(held)
}

func TestAStalledRangeBlocksOnlyThoseWhoNeedIt(t *testing.T) {
	for name, s := range faultShapes {
		t.Run(name, func(t *testing.T) {
			s.Shards = 8
			d := readtest.Make(t, s)
			stalledShard := d.Index.ShardTable[3]
			for _, budget := range []int64{1, 1 << 20} {
				store := &stalling{Storage: readtest.OpenStorage(t, d.Dir), came: make(chan struct{})}
				store.match = func(r *storage.Read) bool { return r.Object.Path == stalledShard.Object.Path }
				f := newFetcherOver(t, d, budget, store)
				var stalled, others readtest.List
				for _, k := range readtest.ReservoirOrder(1, d.Index, 8, 80) {
					if d.Index.ExtentTable[k].Shard == 3 {
						stalled = append(stalled, k)
					} else {
						others = append(others, k)
					}
				}
				var wg sync.WaitGroup
				for range 4 { // more than there are processors
					r := f.Open(stalled)
					wg.Go(func() { readtest.ReadAll(t, d, r, stalled, 3); r.Close() })
				}
				<-store.came
				r := f.Open(others)
				readtest.ReadAll(t, d, r, others, 9)
				r.Close()
				store.letGo()
				wg.Wait()
				require.NoError(t, f.Close())
			}
		})
	}
}

func TestWaitEndsAtReadTimeoutAndReadContinues(t *testing.T) {
	for name, s := range faultShapes {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			store := &stalling{Storage: readtest.OpenStorage(t, d.Dir), came: make(chan struct{}), match: func(*storage.Read) bool { return true }}
			c := testConfig(d, 1<<20)
			c.ReadTimeout = time.Millisecond
			f := newFetcherWith(t, d, c, store)
			r := f.Open(readtest.List{0, 1, 2})
			defer r.Close()
			var l Loan
			for range 2 {
				err := r.Read(context.Background(), 0, 1, &l)
				require.ErrorIs(t, err, ErrTimeout)
				require.ErrorContains(t, err, "shard-000: record 0 at [")
			}
			store.letGo()
			for k := range uint64(3) {
				for l.Release(); len(l.Records) == 0; {
					if err := r.Read(context.Background(), k, 1, &l); err != nil {
						require.ErrorIs(t, err, ErrTimeout, "it has perhaps not come yet")
					}
				}
				require.Equal(t, string(d.Records[k]), string(l.Records[0]))
			}
			l.Release()
		})
	}
}

func TestChangingShardYieldsErrorsNeverWrongBytes(t *testing.T) {
	for name, s := range faultShapes {
		for change, act := range map[string]func(t *testing.T, path string){
			"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 100)) },
			"removed":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
			"rewritten": func(t *testing.T, path string) {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				b[len(b)/2] ^= 1
				require.NoError(t, os.WriteFile(path, b, 0o644))
				require.NoError(t, os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
			},
		} {
			t.Run(name+", "+change, func(t *testing.T) {
				d := readtest.Make(t, s)
				f := newTestFetcher(t, d, 1)
				seq := readtest.InOrder(d.Index)
				r := f.Open(seq)
				defer r.Close()
				act(t, filepath.Join(d.Dir, "shard-000"))
				errs, good := 0, 0
				var l Loan
				for k := range seq {
					if err := r.Read(context.Background(), uint64(k), 1, &l); err != nil {
						require.ErrorIs(t, err, storage.ErrChanged)
						require.ErrorContains(t, err, "shard-000: record ")
						errs++
						continue
					}
					require.Equal(t, string(d.Records[k]), string(l.Records[0]))
					good++
					l.Release()
				}
				require.Equal(t, 60, errs)
				require.Equal(t, 60, good, "the other shard is read")
			})
		}
	}
}

func TestRecordWithBadChecksumAlwaysFailsAlone(t *testing.T) {
	for _, name := range []string{"plain", "gathered"} {
		for _, budget := range []int64{1, 1 << 20} { // with the small one everything is dropped and read again
			t.Run(fmt.Sprintf("%s, budget of %d", name, budget), func(t *testing.T) {
				d := readtest.Make(t, faultShapes[name])
				x := d.Index.ExtentTable[17]
				readtest.Alter(t, d, 0, func(b []byte) { b[x.OffsetBytes+3] ^= 1 })
				f := newTestFetcher(t, d, budget)
				r := f.Open(readtest.InOrder(d.Index))
				defer r.Close()
				var l Loan
				for range 3 {
					for k := range d.Records {
						err := r.Read(context.Background(), uint64(k), 1, &l)
						if k == 17 {
							require.ErrorContains(t, err, "shard-000: record 17 at [")
							require.ErrorContains(t, err, "checksum mismatch")
							continue
						}
						require.NoError(t, err)
						require.Equal(t, string(d.Records[k]), string(l.Records[0]))
						l.Release()
					}
				}
				// Those before it are returned without an error, all at once or not.
				for k := 10; k < 17; {
					require.NoError(t, r.Read(context.Background(), uint64(k), 20, &l))
					k += len(l.Records)
					require.LessOrEqual(t, k, 17)
					l.Release()
				}
				require.Contains(t, f.Stats().LastErrors[0], "shard-000: checksum mismatch")
			})
		}
	}
}

func TestShardWithBadChecksumStaysFailed(t *testing.T) {
	for _, codec := range []string{"gz", "zst", "lz4"} {
		for _, budget := range []int64{1, 4 << 20} {
			t.Run(fmt.Sprintf("%s, budget of %d", codec, budget), func(t *testing.T) {
				d := readtest.Make(t, readtest.Shape{Codec: codec, Shards: 2, Records: 100, MaxBytes: 2000})
				size := int(d.Index.ShardTable[0].Object.SizeBytes)
				// The last bytes are the member's checksum (followed by its size in gz).
				at := map[string]int{"gz": size - 8, "zst": size - 1, "lz4": size - 1}[codec]
				readtest.Alter(t, d, 0, func(b []byte) { b[at] ^= 1 })
				f := newTestFetcher(t, d, budget)
				r := f.Open(readtest.InOrder(d.Index))
				defer r.Close()
				var l Loan
				failedAt := -1
				for k := 0; k < 100 && failedAt < 0; k++ {
					if err := r.Read(context.Background(), uint64(k), 1, &l); err != nil {
						failedAt = k
						break
					}
					require.Equal(t, string(d.Records[k]), string(l.Records[0]))
					l.Release()
				}
				require.GreaterOrEqual(t, failedAt, 0, "the last piece is not lent before the checksum has been seen")
				require.NoError(t, r.Read(context.Background(), 100, 1, &l), "the other shard is read")
				l.Release()
				other := f.Open(readtest.InOrder(d.Index))
				defer other.Close()
				for _, r := range []*Reader{r, other} {
					for _, k := range []uint64{0, 50, 99} {
						err := r.Read(context.Background(), k, 1, &l)
						_, corrupt := errors.AsType[*format.CorruptError](err)
						require.True(t, corrupt, "record %d: %v", k, err)
					}
				}
			})
		}
	}
}

func TestLastErrorsAreRecordedOnceEach(t *testing.T) {
	var l failures
	for i := range 20 {
		l.add(errors.New(string(rune('a' + i/2))))
	}
	require.Equal(t, uint64(20), l.total)
	require.Len(t, l.last(), keptFailures)
	require.Equal(t, "j (2 times)", l.last()[keptFailures-1])
	l.add(errors.New("c"))
	require.Equal(t, "c (3 times)", l.last()[keptFailures-1])
	require.Len(t, l.last(), keptFailures)
}
