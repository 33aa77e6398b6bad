package read

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// servedOrder cuts records of up to 12 KB into chunks of about ten.
func servedOrder(shuffle spec.Shuffle) spec.Order {
	return spec.Order{Shuffle: shuffle, SizeRecords: 1600, Lanes: 8, Groups: 1, Batch: 1, ChunkBytes: 64 << 10, ChunkRecords: 128, Seed: 3}
}

// serviceConfig is for a bucket, with memory that holds little more than what waits in the shuffle.
func serviceConfig(t *testing.T, d *readtest.Dataset, o spec.Order) Options {
	c := Options{
		MemoryBytes: 16 << 20, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords,
		Read: spec.ReadAuto, Order: o, Profile: storage.DefaultProfile(storage.KindObject),
	}
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), c)
	require.NoError(t, err)
	c.MemoryBytes = f.Needs().MemoryBytes
	require.NoError(t, f.Close())
	return c
}

// readTogether reads an epoch with several readers at the same time, each its part.
func readTogether(t *testing.T, d *readtest.Dataset, f *Fetcher, g readtest.List, readers int) {
	var wg sync.WaitGroup
	for w := range readers {
		seq := g.Deal(w, readers)
		r := f.Open(seq)
		wg.Go(func() {
			if err := readtest.ReadEqual(d, r, seq, 16); err != nil {
				t.Error(err)
			}
			r.Close()
		})
	}
	wg.Wait()
}

// told is a service that counts reads of ranges that were never planned: it treats them as urgent.
type told struct {
	*remote.Storage
	mu           sync.Mutex
	wants        map[uint64][]storage.Block
	plans        int
	reads, alone int
	holds        bool // reads are kept in held
	held         []*storage.Read
}

func (s *told) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.Hints = s
	return c
}

func (s *told) Want(reader uint64, wants []storage.Block) {
	s.mu.Lock()
	s.plans++
	s.wants[reader] = append(s.wants[reader][:0], wants...)
	s.mu.Unlock()
	s.Storage.Want(reader, wants)
}

func (s *told) Drop(reader uint64) {
	s.mu.Lock()
	delete(s.wants, reader)
	s.mu.Unlock()
	s.Storage.Drop(reader)
}

func (s *told) Submit(reads []*storage.Read) {
	s.mu.Lock()
	for _, r := range reads {
		s.reads++
		if !s.touched(r) {
			s.alone++
		}
	}
	if s.holds {
		s.held = append(s.held, reads...)
		reads = nil
	}
	s.mu.Unlock()
	s.Storage.Submit(reads)
}

func (s *told) touched(r *storage.Read) bool {
	for _, wants := range s.wants {
		for _, w := range wants {
			if w.Object == r.Object && w.OffsetBytes < r.OffsetBytes+int64(len(r.Buf)) && r.OffsetBytes < w.OffsetBytes+w.SizeBytes {
				return true
			}
		}
	}
	return false
}

// What is read ahead is planned before: only what a reader's first call asks for is not.
func TestPrefetchIsRankedByDueTime(t *testing.T) {
	for name, read := range map[string]spec.Read{"scan": spec.ReadScan, "gather": spec.ReadGather} {
		t.Run(name, func(t *testing.T) {
			s := readtest.Serve(t, readtest.Make(t, readtest.Shape{Shards: 12, Records: 400, MaxBytes: 6_000}))
			service := &told{Storage: s.Storage, wants: map[uint64][]storage.Block{}}
			o := servedOrder(spec.ShuffleReservoir)
			config := serviceConfig(t, s.Dataset, o)
			config.Read = read
			f := newFetcherWith(t, s.Dataset, config, service)
			// In step: if one reader is far ahead memory is too short, and reads are repeated.
			readInStep(t, s.Dataset, f, readtest.Epoch(t, s.Index, o, 0), 2, 16)
			t.Logf("%d reads, %d of them alone, %d plans", service.reads, service.alone, service.plans)
			require.Greater(t, service.reads, 200)
			require.LessOrEqual(t, service.alone, 2*2*16, "what two calls of two readers ask for")
			require.Less(t, int64(service.plans), 400+toldOfWaits(f.Stats()))
			require.Empty(t, service.wants)
		})
	}
}

// If a reader waits for what was read ahead of it, the service is told.
func TestAwaitedReadsAreDueNow(t *testing.T) {
	s := readtest.Serve(t, readtest.Make(t, readtest.Shape{Shards: 4, Records: 400, MaxBytes: 6_000}))
	service := &told{Storage: s.Storage, wants: map[uint64][]storage.Block{}}
	o := servedOrder(spec.ShuffleNone)
	config := serviceConfig(t, s.Dataset, o)
	config.LookaheadBytes = 2 << 20
	f := newFetcherWith(t, s.Dataset, config, service)
	seq := readtest.InOrder(s.Index)
	r := f.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, s.Dataset, r, seq[:40], 4)
	service.mu.Lock()
	service.holds = true
	service.mu.Unlock()
	var at atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for k := 40; k < len(seq); k++ {
			at.Store(int64(k))
			if err := readtest.ReadEqual(s.Dataset, from{r, uint64(k)}, seq[k:k+1], 1); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	// The chunk of the record that the reader waits for is due now.
	require.Eventually(t, func() bool {
		service.mu.Lock()
		defer service.mu.Unlock()
		x := s.Index.ExtentTable[at.Load()]
		for _, h := range service.held {
			if h.Object != s.Index.Shard(x.Shard).Object || x.OffsetBytes < h.OffsetBytes || x.OffsetBytes >= h.OffsetBytes+int64(len(h.Buf)) {
				continue
			}
			for _, wants := range service.wants {
				for _, w := range wants {
					if w.DueBytes == 0 && w.Object == h.Object && w.OffsetBytes == h.OffsetBytes {
						return true
					}
				}
			}
		}
		return false
	}, time.Minute, time.Millisecond)
	service.mu.Lock()
	held := service.held
	service.holds, service.held = false, nil
	service.mu.Unlock()
	service.Storage.Submit(held)
	require.NoError(t, <-ended)
}

// toldOfWaits returns how often storage may have been told, at most, that a reader waits: once per
// 10 ms of waiting. How long readers wait depends on the machine.
func toldOfWaits(s Stats) int64 { return int64(s.WaitNanos) / int64(10*time.Millisecond) }

// An epoch takes one request per chunk, and no more bytes than its records have, if readers keep
// step: memory holds little more than what waits in the shuffle.
func TestEpochTakesOneRequestPerChunk(t *testing.T) {
	s := readtest.Serve(t, readtest.Make(t, readtest.Shape{Shards: lessIfShort(24, 10), Records: 400, MaxBytes: 12_000}))
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}[:lessIfShort(4, 1)] {
		for _, readers := range []int{4, 1}[:lessIfShort(2, 1)] {
			t.Run(fmt.Sprintf("%s/readers=%d", shuffle, readers), func(t *testing.T) {
				o := servedOrder(shuffle)
				config := serviceConfig(t, s.Dataset, o)
				f := newFetcherWith(t, s.Dataset, config, s.Storage)
				require.Equal(t, spec.ReadScan, f.o.Choice.Strategy, f.o.Choice.Reason)
				requestsBefore, bytesBefore := s.Asked()
				readInStep(t, s.Dataset, f, readtest.Epoch(t, s.Index, o, 0), readers, 16)
				requests, bytes := s.Asked()
				requests, bytes = requests-requestsBefore, bytes-bytesBefore
				needs, st := f.Needs(), f.Stats()
				t.Logf("memory %d MiB, %d requests for %d chunks, %d bytes of %d; %d waits, %d dropped, %d reread", config.MemoryBytes>>20, requests, needs.Requests, bytes, needs.Bytes, st.Waits, st.PiecesDropped, st.PiecesReread)
				require.EqualValues(t, f.o.Survey.Places.Table.Len(), needs.Requests)
				require.LessOrEqual(t, float64(requests), 1.02*float64(needs.Requests))
				require.LessOrEqual(t, float64(bytes), 1.03*float64(st.BytesOut))
			})
		}
	}
}
