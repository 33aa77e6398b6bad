package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// keeper implements only the contract of storage.Hints with Keeps: a read of a chunk that is
// announced fetches all of the chunk, once, and it stays until it is passed. It counts what it
// fetches.
type keeper struct {
	storage.Storage
	room int64

	mu                   sync.Mutex
	share                int64
	chunks               map[string]map[keptRange]map[uint64]bool // per object: readers that have planned it
	brought              map[keptRange]bool
	requests             int64 // chunks that were fetched, and reads of what was not planned
	bytes, held, most    int64
	plans, dones, misses int64
}

type keptRange struct {
	path   string
	off, n int64
}

func newKeeper(s storage.Storage, room int64) *keeper {
	return &keeper{Storage: s, room: room, chunks: map[string]map[keptRange]map[uint64]bool{}, brought: map[keptRange]bool{}}
}

func (s *keeper) Use() storage.HintUse { return storage.HintUse{Keeps: true, RoomBytes: s.room} }

func (s *keeper) SetShare(n int64) { s.share = n }

func (s *keeper) Want(reader uint64, wants []storage.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans++
	for _, w := range wants {
		c := keptRange{w.Object.Path, w.OffsetBytes, w.SizeBytes}
		of := s.chunks[c.path]
		if of == nil {
			of = map[keptRange]map[uint64]bool{}
			s.chunks[c.path] = of
		}
		if of[c] == nil {
			of[c] = map[uint64]bool{}
			s.held += c.n
		}
		of[c][reader] = true
	}
	s.most = max(s.most, s.held)
}

func (s *keeper) Passed(reader uint64, blocks []storage.Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range blocks {
		s.dones++
		s.leave(reader, keptRange{b.Object.Path, b.OffsetBytes, b.SizeBytes})
	}
}

func (s *keeper) leave(reader uint64, c keptRange) {
	if of := s.chunks[c.path][c]; of != nil {
		if delete(of, reader); len(of) == 0 {
			delete(s.chunks[c.path], c)
			delete(s.brought, c)
			s.held -= c.n
		}
		if len(s.chunks[c.path]) == 0 {
			delete(s.chunks, c.path)
		}
	}
}

func (s *keeper) Drop(reader uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.chunks {
		for c := range of {
			if of[c][reader] {
				s.leave(reader, c)
			}
		}
	}
}

func (s *keeper) Submit(reads []*storage.Read) {
	s.mu.Lock()
	for _, r := range reads {
		left := int64(len(r.Buf))
		for c := range s.chunks[r.Object.Path] {
			begin, end := max(c.off, r.OffsetBytes), min(c.off+c.n, r.OffsetBytes+int64(len(r.Buf)))
			if begin >= end {
				continue
			}
			left -= end - begin
			if !s.brought[c] {
				s.brought[c] = true
				s.requests++
				s.bytes += c.n
			}
		}
		if left > 0 {
			s.requests++
			s.misses++
			s.bytes += left
		}
	}
	s.mu.Unlock()
	s.Storage.Submit(reads)
}

func (s *keeper) Caps() storage.Caps { return storage.Caps{Hints: s} }

// readInStep reads an epoch with several readers that keep step, as trainers do: step records each.
func readInStep(t *testing.T, d *readtest.Dataset, f *Fetcher, g readtest.List, readers, step int) {
	seqs, rs := make([]readtest.List, readers), make([]*Reader, readers)
	for w := range readers {
		seqs[w] = g.Deal(w, readers)
		rs[w] = f.Open(seqs[w])
	}
	for k := 0; k < len(seqs[0]); k += step {
		for w, r := range rs {
			end := min(k+step, len(seqs[w]))
			require.NoError(t, readtest.ReadEqual(d, from{r, uint64(k)}, seqs[w][k:end], step))
		}
	}
	for _, r := range rs {
		r.Close()
	}
}

// If memory is short, and a cache has room for what an order has open, each chunk goes to the cache
// once, and is removed from it.
func TestCachedEpochTakesOneRequestPerChunk(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: lessIfShort(60, 24), Records: 200, MaxBytes: 6_000})
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull} {
		for _, readers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/readers=%d", shuffle, readers), func(t *testing.T) {
				o := spec.Order{Shuffle: shuffle, SizeRecords: 1600, Lanes: 8, Groups: 1, Batch: 1, ChunkBytes: 30_000, ChunkRecords: 128, Seed: 3}
				config := Options{
					MemoryBytes: 4 << 20, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords, LookaheadBytes: 4 << 20,
					Read: spec.ReadAuto, Order: o, Profile: storage.DefaultProfile(storage.KindObject),
				}
				cache := newKeeper(readtest.OpenStorage(t, d.Dir), 1<<30)
				f := newFetcherWith(t, d, config, cache)
				require.True(t, f.o.Choice.Chunks, f.o.Choice.Reason)
				g := readtest.Epoch(t, d.Index, o, 0)
				readInStep(t, d, f, g, readers, 32)
				needs, st := f.Needs(), f.Stats()
				t.Logf("%d requests (%d unplanned) for %d chunks, %d of %d bytes, %d plans, at most %d held, open %d", cache.requests, cache.misses, needs.Requests, cache.bytes, needs.Bytes, cache.plans, cache.most, needs.CacheBytes)
				require.LessOrEqual(t, float64(cache.requests), 1.02*float64(needs.Requests))
				require.LessOrEqual(t, float64(cache.bytes), 1.03*float64(st.BytesOut))
				require.Zero(t, cache.held, "nothing is left")
				require.Less(t, cache.plans, int64(len(g)/4)+toldOfWaits(st), "not for each call")
				if shuffle != spec.ShuffleFull {
					require.LessOrEqual(t, cache.most, needs.CacheBytes)
				}
			})
		}
	}
}

// from is a reader whose record 0 is another reader's record k.
type from struct {
	r *Reader
	k uint64
}

func (f from) Read(ctx context.Context, k uint64, n int, l *Loan) error {
	return f.r.Read(ctx, f.k+k, n, l)
}

// No byte depends on the budget, on the look-ahead, on the strategy, on the size of reads, or on
// whether there is a cache.
func TestRemoteBytesDoNotDependOnSettings(t *testing.T) {
	for name, shape := range map[string]readtest.Shape{
		"plain":      {Shards: 10, Records: 60, MaxBytes: 3000, GapBytes: 40, NoNewline: true},
		"compressed": {Codec: "zst", Shards: 6, Records: 60, MaxBytes: 3000, Member: 20},
		"checked":    {Shards: 6, Records: 60, MaxBytes: 3000, Checksummed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := readtest.Serve(t, readtest.Make(t, shape))
			rng := rand.New(rand.NewPCG(11, 12))
			spool := spoolConfig(t, 1<<20, spec.Order{}).Spool
			for i := range lessIfShort(12, 6) {
				o := servedOrder([]spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}[i%4])
				o.SizeRecords, o.ChunkBytes, o.Seed = 200, uint64(1)<<(10+rng.IntN(7)), uint64(i)
				p := storage.DefaultProfile(storage.KindWeb)
				p.ReadBytes, p.GapBytes = 4<<10<<rng.IntN(8), int64(rng.IntN(3))*4000
				config := Options{
					MemoryBytes: 1 << (20 + rng.IntN(5)), ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords,
					LookaheadBytes: []int64{0, 1, 100_000, 10 << 20}[rng.IntN(4)], Order: o, Profile: p, Released: readtest.Poison,
					Read: []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadGather}[rng.IntN(3)],
				}
				config.Spool = spool
				var store storage.Storage = s.Storage
				room := []int64{-1, 1 << 20, 1 << 30}[rng.IntN(3)]
				if room > 0 {
					store = newKeeper(s.Storage, room)
				}
				f, err := newFetcher(s.Index, store, config)
				require.NoError(t, err)
				g := readtest.Epoch(t, s.Index, o, 0)
				readTogether(t, s.Dataset, f, g, 1+i%3)
				// Somewhere else, and back.
				r := f.Open(g)
				for range 10 {
					k := rng.IntN(len(g) - 40)
					require.NoError(t, readtest.ReadEqual(s.Dataset, from{r, uint64(k)}, g[k:k+40], 1+rng.IntN(20)))
				}
				r.Close()
				require.NoError(t, f.Close(), "%s, cache room %d", f.o.Choice.Reason, room)
				requireNothingLeft(t, f)
				if k, is := store.(*keeper); is {
					require.Empty(t, k.chunks, "readers that are closed have planned nothing")
				}
			}
		})
	}
}
