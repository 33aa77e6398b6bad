package stream

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read"
)

// withCores makes the test run as on a machine with idle cores.
func withCores(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// equalRecords returns a dataset of n records of size bytes each, in one shard.
func equalRecords(n, size int) *memory {
	m := &memory{shards: 1, lends: 100}
	for i := range n {
		b := make([]byte, size)
		for j := range b {
			b[j] = byte(i*31 + j*7 + j>>8)
		}
		m.bytes = append(m.bytes, b)
		m.hashes = append(m.hashes, uint64(i))
	}
	return m
}

// readAheadOf returns worker 0's file of such records, on a machine with idle cores.
func readAheadOf(t *testing.T, n, size int) (src *Source, set *Set, file []byte) {
	withCores(t, 4)
	m := equalRecords(n, size)
	v := defaultView(t, 0, uint64(n))
	src = newSource(m, m.open)
	t.Cleanup(src.Close)
	want, _ := naive(m, v, 0)
	return src, src.Set(v, nil), want[Data]
}

// readOn reads [from, to) of a file, n bytes at a time, and stops when less than n are left.
func readOn(t *testing.T, h *Handle, file []byte, from, to int64, n int) {
	for off := from; off+int64(n) <= to; off += int64(n) {
		checkRead(t, h, file, off, n)
	}
}

// troubled is a lender that fails for one record.
type troubled struct {
	*memory
	record uint64
	err    error // nil: the record blocks until the context ends
}

func (l troubled) open(seq sequence) reader {
	return troubledReader{memoryReader{l.memory, seq}, l}
}

type troubledReader struct {
	memoryReader
	l troubled
}

func (r troubledReader) Read(ctx context.Context, k uint64, n int, l *read.Loan) error {
	records := make([]uint64, n)
	for i, record := range records[:r.seq.Records(k, records)] {
		if record == r.l.record && i > 0 {
			return r.memoryReader.Read(ctx, k, i, l)
		} else if record == r.l.record && r.l.err != nil {
			return r.l.err
		} else if record == r.l.record {
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return r.memoryReader.Read(ctx, k, n, l)
}

func TestSequentialReadersAreCopiedAheadOf(t *testing.T) {
	src, set, file := readAheadOf(t, 2000, 5000)
	for _, n := range []int{10 << 10, 128 << 10, MaxReadBytes - 48, MaxReadBytes} {
		h := set.Open(0, Data)
		for off := int64(0); off < int64(len(file)); off += int64(n) {
			checkRead(t, h, file, off, n)
			if read := off + int64(n); read > 2*firstAheadBytes && read+MaxReadBytes < int64(len(file)) {
				require.NotZero(t, src.holders.blocks.Load(), "%d bytes were read on, %d at a time", read, n)
			}
		}
		h.Close()
		require.Zero(t, src.holders.blocks.Load())
	}
}

func TestJumpingReadersReadBytesOfTheirPosition(t *testing.T) {
	_, set, file := readAheadOf(t, 3000, 3000)
	h := set.Open(0, Data)
	defer h.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		off := rng.Int64N(int64(len(file)))
		n := 1 + rng.IntN(MaxReadBytes)
		for range rng.IntN(12) {
			checkRead(t, h, file, off, n)
			off += int64(n)
			if rng.IntN(6) == 0 {
				off += rng.Int64N(3 << 20) // within the blocks ahead, or past them
			}
		}
	}
}

func TestReplyKeepsItsBlockWhenReaderContinues(t *testing.T) {
	src, set, file := readAheadOf(t, 2000, 5000)
	h := set.Open(0, Data)
	replies := make([]Reply, 8)
	for i := range replies {
		require.NoError(t, h.ReadAt(context.Background(), &replies[i], int64(i)<<20, 1<<20))
	}
	h.Close()
	for i := range replies {
		require.True(t, bytes.Equal(file[i<<20:(i+1)<<20], bytes.Join(replies[i].Slices, nil)))
		replies[i].Release()
	}
	require.Zero(t, src.holders.blocks.Load())
}

func TestUnreadableRecordFailsOnlyItsReaders(t *testing.T) {
	withCores(t, 4)
	m := equalRecords(2000, 5000)
	v := defaultView(t, 0, 2000)
	want, ends := naive(m, v, 0)
	file := want[Data]
	records := make([]uint64, v.Count(0))
	v.Records(0, 0, records)
	const at = 500 // position in the stream
	begins := ends[at-1]
	for name, err := range map[string]error{"an error": errors.New("bad sector"), "a stall": nil} {
		t.Run(name, func(t *testing.T) {
			src := newSource(m, troubled{m, records[at], err}.open)
			defer src.Close()
			h := src.Set(v, nil).Open(0, Data)
			defer h.Close()
			const n = 128 << 10
			readOn(t, h, file, 0, begins, n)
			ctx, cancel := context.WithCancel(context.Background())
			if err == nil {
				cancel()
			}
			var r Reply
			got := h.ReadAt(ctx, &r, begins/n*n, n)
			cancel()
			if err == nil {
				require.ErrorIs(t, got, context.Canceled)
			} else {
				require.ErrorIs(t, got, err)
			}
			require.Zero(t, r.Len())
			readOn(t, h, file, ends[at], int64(len(file)), n)
		})
	}
}

// The goroutine that copies ahead waits for a blocked record until the reader seeks away.
func TestCopyForAbandonedPositionDoesNotBlock(t *testing.T) {
	withCores(t, 4)
	m := equalRecords(4000, 5000)
	v := defaultView(t, 0, 4000)
	want, ends := naive(m, v, 0)
	records := make([]uint64, v.Count(0))
	v.Records(0, 0, records)
	const at = 500 // position in the stream
	src := newSource(m, troubled{m, records[at], nil}.open)
	defer src.Close()
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	readOn(t, h, want[Data], 0, ends[at-1], 64<<10)
	checkRead(t, h, want[Data], ends[3000], 1000)
	h.fillers.Wait()
}

// stuckOnce is a lender in which one record blocks its first reader until that reader's context
// ends. It counts how often each record was lent.
type stuckOnce struct {
	*memory
	record uint64

	mu    sync.Mutex
	stuck bool
	lent  map[uint64]int
	again bool // the record was lent with Loan.Again
}

func (l *stuckOnce) open(seq sequence) reader {
	return stuckReader{memoryReader{l.memory, seq}, l}
}

type stuckReader struct {
	memoryReader
	l *stuckOnce
}

func (r stuckReader) Read(ctx context.Context, k uint64, n int, l *read.Loan) error {
	records := make([]uint64, 1)
	r.seq.Records(k, records)
	r.l.mu.Lock()
	wait := records[0] == r.l.record && !r.l.stuck
	if wait {
		r.l.stuck = true
	} else {
		r.l.lent[records[0]]++
		r.l.again = r.l.again || records[0] == r.l.record && l.Again
	}
	r.l.mu.Unlock()
	if wait {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.memoryReader.Read(ctx, k, 1, l)
}

// For the fetcher, records that were copied ahead have been delivered: asking for them again may
// mean reading them again.
func TestReaderReceivesCopiedPrefixIfRestIsBlocked(t *testing.T) {
	withCores(t, 4)
	const size, at = 4096, 1000 // in the fourth MiB, near its end
	m := equalRecords(4000, size)
	v := defaultView(t, 0, 4000)
	want, _ := naive(m, v, 0)
	records := make([]uint64, v.Count(0))
	v.Records(0, 0, records)
	l := &stuckOnce{memory: m, record: records[at], lent: map[uint64]int{}}
	src := newSource(m, l.open)
	defer src.Close()
	h := src.Set(v, nil).Open(0, Data)
	readOn(t, h, want[Data], 0, 2<<20, MaxReadBytes)
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.stuck
	}, time.Minute, time.Millisecond, "who copies ahead comes to the record")
	readOn(t, h, want[Data], 2<<20, 6<<20, MaxReadBytes)
	h.Close()
	require.True(t, l.again, "the fetcher is told")
	twice := 0
	for _, record := range records[3<<20/size : 4<<20/size] {
		if l.lent[record] > 1 {
			twice++
		}
	}
	const inPart, straddling = partBytes / size, MaxReadBytes/partBytes + 1
	require.LessOrEqual(t, twice, inPart+straddling, "of %d records of the block", 1<<20/size)
}

// stuck is a lender in which some records block until the context of their first reader ends.
type stuck struct {
	*memory
	records []uint64

	mu   sync.Mutex
	came map[uint64]context.Context
}

func (l *stuck) open(seq sequence) reader { return stuckReaders{memoryReader{l.memory, seq}, l} }

func (l *stuck) waits(record uint64) (came, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx := l.came[record]
	return ctx != nil, ctx != nil && ctx.Err() != nil
}

type stuckReaders struct {
	memoryReader
	l *stuck
}

func (r stuckReaders) Read(ctx context.Context, k uint64, n int, l *read.Loan) error {
	one := make([]uint64, 1)
	r.seq.Records(k, one)
	record := one[0]
	r.l.mu.Lock()
	wait := slices.Contains(r.l.records, record) && r.l.came[record] == nil
	if wait {
		r.l.came[record] = ctx
	}
	r.l.mu.Unlock()
	if !wait {
		return r.memoryReader.Read(ctx, k, 1, l)
	}
	<-ctx.Done()
	return ctx.Err()
}

// When a reader reads the rest of a block itself, the copy of the blocks after it continues.
func TestCopyAheadContinuesAfterAbandonedBlock(t *testing.T) {
	withCores(t, 4)
	const size, part = 4096, 128 << 10
	m := equalRecords(4000, size)
	v := defaultView(t, 0, 4000)
	want, _ := naive(m, v, 0)
	records := make([]uint64, v.Count(0))
	v.Records(0, 0, records)
	first, behind := records[3<<20/size+10], records[4<<20/size+10]
	l := &stuck{memory: m, records: []uint64{first, behind}, came: map[uint64]context.Context{}}
	src := newSource(m, l.open)
	defer src.Close()
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	readOn(t, h, want[Data], 0, 2<<20, MaxReadBytes)
	comes := func(record uint64) {
		require.Eventually(t, func() bool { came, _ := l.waits(record); return came }, time.Minute, time.Millisecond)
	}
	comes(first)
	readOn(t, h, want[Data], 2<<20, 3<<20+part, part)
	_, ended := l.waits(first)
	require.True(t, ended, "it is left off")
	comes(behind)
	readOn(t, h, want[Data], 3<<20+part, 4<<20, part)
	_, ended = l.waits(behind)
	require.False(t, ended)
	readOn(t, h, want[Data], 4<<20, 6<<20, part)
}

func TestBlocksAreBoundedForAnyNumberOfStoppedReaders(t *testing.T) {
	src, set, file := readAheadOf(t, 2000, 5000)
	var handles []*Handle
	for range 2 * maxBlocks {
		h := set.Open(0, Data)
		handles = append(handles, h)
		for i := range int64(40) { // more reads than recent remembers of the others
			checkRead(t, h, file, i*100_000, 100_000)
			require.LessOrEqual(t, src.holders.blocks.Load(), int64(maxBlocks))
		}
		h.mu.Lock()
		require.NotEmpty(t, h.ahead.blocks, "those who have stopped have given theirs up")
		h.mu.Unlock()
		h.fillers.Wait() // a goroutine that is filling a block holds it
	}
	for _, h := range handles {
		h.Close()
	}
	require.Zero(t, src.holders.blocks.Load())
	require.Empty(t, src.holders.list)
}

// A handle is listed before it gets its first block, and may never get one.
func TestClosedHandleThatGotNoBlockIsNotListed(t *testing.T) {
	src, set, file := readAheadOf(t, 2000, 5000)
	src.holders.blocks.Add(maxBlocks) // others have them all
	defer src.holders.blocks.Add(-maxBlocks)
	h := set.Open(0, Data)
	for i := range int64(40) {
		checkRead(t, h, file, i*100_000, 100_000)
	}
	require.Len(t, src.holders.list, 1)
	h.Close()
	require.Empty(t, src.holders.list)
}

func TestConcurrentReadersAreNotCopiedAheadOf(t *testing.T) {
	src, set, file := readAheadOf(t, 2000, 5000)
	var handles [4]*Handle
	for i := range handles {
		handles[i] = set.Open(0, Data)
		defer handles[i].Close()
	}
	for off := int64(0); off < 8<<20; off += 1 << 20 {
		for _, h := range handles {
			checkRead(t, h, file, off, 1<<20)
		}
		if off > handleBlocks<<20 { // past the blocks that the first handles got before the others came
			for _, h := range handles {
				h.fillers.Wait() // a goroutine that is filling a block holds it
			}
			require.Zero(t, src.holders.blocks.Load())
		}
	}
}

// While a service delivers data, the cores are busy: a copy ahead would only add to that.
func TestDataStillArrivingFromServiceIsNotCopiedAhead(t *testing.T) {
	withCores(t, 4)
	m := equalRecords(2000, 5000)
	m.brings = true
	src := newSource(m, m.open)
	defer src.Close()
	set := src.Set(defaultView(t, 0, 2000), nil)
	want, _ := naive(m, set.view, 0)
	h := set.Open(0, Data)
	defer h.Close()
	readOn(t, h, want[Data], 0, 4<<20, MaxReadBytes)
	require.Zero(t, src.holders.blocks.Load())
	m.brings = false // everything is in memory now
	readOn(t, h, want[Data], 4<<20, 8<<20, MaxReadBytes)
	require.NotZero(t, src.holders.blocks.Load())
}
