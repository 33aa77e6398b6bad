package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/uring"
)

// memory is a dataset of records in memory. It stands in for a catalog and a fetcher, with any
// sizes and keys that a test needs.
type memory struct {
	format.Format
	bytes  [][]byte
	hashes []uint64
	shards int
	lends  int // the maximum number of records per Read
	brings bool
	batch  int // number of records that are contiguous in memory, in the order of their reader; 0: none
}

func (m *memory) Sizes(records []uint64, dst []int64) {
	for i, r := range records {
		dst[i] = int64(len(m.bytes[r]))
	}
}

func (m *memory) KeyHashes(records []uint64, dst []uint64) bool {
	for i, r := range records {
		dst[i] = m.hashes[r]
	}
	return true
}

func (m *memory) Growth(_, position uint64) int64 { return int64(len(prefix(position))) }

func (m *memory) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		dst[i] = catalog.Extent{Shard: int(r) % m.shards, Ordinal: r / uint64(m.shards)}
	}
}

func (m *memory) Shard(i int) catalog.Shard { return catalog.Shard{IDPrefix: uint64(i) << 40} }

func (m *memory) Unpacker() format.Format { return m }

func (m *memory) Prologue(n uint64) []byte { return []byte(fmt.Sprintf("<%d>", n)) }
func (m *memory) Epilogue(n uint64) []byte { return bytes.Repeat([]byte{'.'}, 1024) }

func (m *memory) Rename(dst, record []byte, position uint64) ([]byte, error) {
	return append(append(dst, prefix(position)...), record...), nil
}

func prefix(position uint64) string { return "dup-" + strconv.FormatUint(position, 10) + "/" }

func (m *memory) open(seq sequence) reader {
	if m.batch > 0 {
		return newOrderedReader(m, seq)
	}
	return memoryReader{m, seq}
}

type memoryReader struct {
	m   *memory
	seq read.Sequence
}

func (r memoryReader) Read(_ context.Context, k uint64, n int, l *read.Loan) error {
	records := make([]uint64, min(n, r.m.lends))
	for _, record := range records[:r.seq.Records(k, records)] {
		l.Records = append(l.Records, r.m.bytes[record])
	}
	return nil
}

func (memoryReader) Contiguous() bool { return false }
func (r memoryReader) Busy() bool     { return r.m.brings }
func (memoryReader) Close()           {}

// orderedReader has the records of its sequence in batches, in memory outside the Go heap.
type orderedReader struct {
	memory  []byte
	records [][]byte
	lends   int
}

func newOrderedReader(m *memory, seq read.Sequence) *orderedReader {
	records := make([]uint64, seq.Len())
	seq.Records(0, records)
	bytes := 1
	for _, record := range records {
		bytes += len(m.bytes[record]) + 1
	}
	memory, err := uring.Map(bytes)
	if err != nil {
		panic(err)
	}
	r := &orderedReader{memory: memory, lends: m.lends}
	at := 0
	for k, record := range records {
		if k%m.batch == 0 {
			at++ // a gap
		}
		n := copy(memory[at:], m.bytes[record])
		r.records = append(r.records, memory[at:at+n:at+n])
		at += n
	}
	return r
}

func (r *orderedReader) Read(_ context.Context, k uint64, n int, l *read.Loan) error {
	l.Records = append(l.Records, r.records[k:k+uint64(min(n, r.lends))]...)
	return nil
}

func (*orderedReader) Contiguous() bool { return true }
func (*orderedReader) Busy() bool       { return false }
func (r *orderedReader) Close()         { _ = uring.Unmap(r.memory) }

// drawDataset draws records of many sizes; some share a key, or have none (0).
func drawDataset(t *rapid.T) *memory {
	n := rapid.IntRange(1, 600).Draw(t, "records")
	keys := rapid.IntRange(1, 2*n).Draw(t, "keys")
	largest := rapid.SampledFrom([]int{1, 40, 3000, 120_000}).Draw(t, "largest")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	m := &memory{shards: rapid.IntRange(1, 5).Draw(t, "shards"), lends: rapid.IntRange(1, 300).Draw(t, "lends")}
	if largest <= 3000 { // cheap to copy
		m.batch = rapid.SampledFrom([]int{0, 1, 3, 100}).Draw(t, "batch")
	}
	for range n {
		b := make([]byte, 1+rng.IntN(largest))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		m.bytes = append(m.bytes, b)
		m.hashes = append(m.hashes, rng.Uint64N(uint64(keys)))
	}
	return m
}

func drawView(t *rapid.T, records int) *order.View {
	starts := []uint64{0}
	for i := 1; i < records; i++ {
		if rapid.IntRange(0, 9).Draw(t, "cut") == 0 {
			starts = append(starts, uint64(i))
		}
	}
	starts = append(starts, uint64(records))
	o := spec.Default().Order
	o.Shuffle = rapid.SampledFrom([]spec.Shuffle{spec.ShuffleNone, spec.ShuffleFull, spec.ShuffleReservoir, spec.ShuffleBlock}).Draw(t, "shuffle")
	o.SizeRecords, o.Lanes = uint64(rapid.IntRange(1, 100).Draw(t, "size")), uint64(rapid.IntRange(1, 8).Draw(t, "lanes"))
	e, err := order.NewEpoch(o, 3, starts, nil)
	require.NoError(t, err)
	deal := spec.Assignment{
		Workers: uint64(rapid.IntRange(1, 7).Draw(t, "workers")),
		Batch:   uint64(rapid.IntRange(1, 5).Draw(t, "batch")),
		Dealing: rapid.SampledFrom([]spec.Dealing{spec.DealInterleaved, spec.DealContiguous}).Draw(t, "deal"),
		Tail:    rapid.SampledFrom([]spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad}).Draw(t, "tail"),
	}
	var done []order.Done
	if n := rapid.IntRange(0, records).Draw(t, "consumed"); n > 0 {
		done = append(done, order.Done{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{uint64(n)}})
	}
	v, err := order.NewView(e, done, deal)
	require.NoError(t, err)
	return v
}

// defaultView returns a view with the default settings of chunks that start at starts.
func defaultView(t *testing.T, starts ...uint64) *order.View {
	e, err := order.NewEpoch(spec.Default().Order, 0, starts, nil)
	require.NoError(t, err)
	v, err := order.NewView(e, nil, spec.Default().Deal)
	require.NoError(t, err)
	return v
}

// naive returns the three files of a worker, and the end of each record.
func naive(m *memory, v *order.View, w uint64) (files [3][]byte, ends []int64) {
	n := v.Count(w)
	records := make([]uint64, n)
	v.Records(w, 0, records)
	data := m.Prologue(n)
	for k, r := range records {
		files[Offsets] = binary.LittleEndian.AppendUint64(files[Offsets], uint64(len(data)))
		if k > 0 && m.hashes[r] != 0 && m.hashes[r] == m.hashes[records[k-1]] {
			data = append(data, prefix(uint64(k))...)
		}
		data = append(data, m.bytes[r]...)
		ends = append(ends, int64(len(data)))
		files[IDs] = binary.BigEndian.AppendUint64(files[IDs], r%uint64(m.shards)<<40)
		files[IDs] = binary.BigEndian.AppendUint64(files[IDs], r/uint64(m.shards))
	}
	files[Offsets] = binary.LittleEndian.AppendUint64(files[Offsets], uint64(len(data)))
	files[Data] = append(data, m.Epilogue(n)...)
	return files, ends
}

func TestFilesEqualTheNaiveConcatenationForEveryReadSizeAndPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDataset(t)
		v := drawView(t, len(m.bytes))
		src := newSource(m, m.open)
		defer src.Close()
		set := src.Set(v, nil)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "reads"), 1))
		ctx := context.Background()
		for w := range v.Deal().Workers {
			want, ends := naive(m, v, w)
			for kind, file := range want {
				size, err := set.SizeBytes(ctx, w, Kind(kind))
				require.NoError(t, err)
				require.EqualValues(t, len(file), size)
				h := set.Open(w, Kind(kind))
				most := 1 + rng.IntN(MaxReadBytes)
				for off := 0; off <= len(file); {
					n := 1 + rng.IntN(most)
					checkRead(t, h, file, int64(off), n)
					off += n
				}
				for range 10 {
					checkRead(t, h, file, rng.Int64N(int64(len(file)+10)), rng.IntN(most))
				}
				h.Close()
			}
			own := int(v.Own(w))
			for range 20 {
				mark := rng.Int64N(int64(len(want[Data]) + 2))
				whole := 0
				for whole < own && ends[whole] <= mark {
					whole++
				}
				got, err := set.WholeRecords(ctx, w, Data, mark)
				require.NoError(t, err)
				require.EqualValues(t, whole, got, "mark %d of %d", mark, len(want[Data]))
			}
		}
	})
}

func checkRead(t require.TestingT, h *Handle, file []byte, off int64, n int) {
	var r Reply
	require.NoError(t, h.ReadAt(context.Background(), &r, off, n))
	require.LessOrEqual(t, len(r.Slices), MaxSlices)
	want := file[min(off, int64(len(file))):min(off+int64(n), int64(len(file)))]
	require.Equal(t, len(want), r.Len())
	got := bytes.Join(r.Slices, nil)
	require.True(t, bytes.Equal(want, got), "bytes [%d, %d)", off, off+int64(n))
	r.Release()
	require.Zero(t, r.Len())
}

func TestOneHandleServesReadersAtManyOffsets(t *testing.T) {
	m := &memory{shards: 1, lends: 100}
	for i := range 20_000 {
		m.bytes = append(m.bytes, bytes.Repeat([]byte{byte(i)}, 1+i%97))
		m.hashes = append(m.hashes, uint64(i%50))
	}
	v := defaultView(t, 0, 7_000, 20_000)
	src := newSource(m, m.open)
	defer src.Close()
	want, _ := naive(m, v, 0)
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for off := int64(i) * 50_000; off < int64(len(want[Data])); off += 7777 * int64(i+1) {
				checkRead(t, h, want[Data], off, 5000)
			}
		})
	}
	group.Wait()
}

func TestContiguousRecordsAreSentTogetherWithoutCopying(t *testing.T) {
	m := &memory{shards: 1, lends: 40, batch: 100}
	for i := range 10_000 {
		m.bytes = append(m.bytes, bytes.Repeat([]byte{byte(i)}, 500))
		m.hashes = append(m.hashes, uint64(i))
	}
	v := defaultView(t, 0, 10_000)
	src := newSource(m, m.open)
	defer src.Close()
	want, _ := naive(m, v, 0)
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	memory := h.reader.(*orderedReader).memory
	begin := uintptr(unsafe.Pointer(&memory[0]))
	prologue := int64(len(m.Prologue(10_000)))
	var r Reply
	for off := prologue; off < 5_000_000; off += 128 << 10 {
		n := min(128<<10, 5_000_000+prologue-off)
		require.NoError(t, h.ReadAt(t.Context(), &r, off, int(n)))
		require.Equal(t, want[Data][off:off+n], bytes.Join(r.Slices, nil))
		require.LessOrEqual(t, len(r.Slices), 4, "parts of batches of 50 000 bytes")
		for _, s := range r.Slices {
			require.Less(t, uintptr(unsafe.Pointer(&s[0]))-begin, uintptr(len(memory)), "it is the reader's memory")
		}
		r.Release()
	}
}

func TestReadAllocationsDoNotGrowWithRecords(t *testing.T) {
	m := &memory{shards: 1, lends: 256}
	for range 10_000 {
		m.bytes = append(m.bytes, make([]byte, 500))
		m.hashes = append(m.hashes, uint64(len(m.hashes)))
	}
	v := defaultView(t, 0, 10_000)
	src := newSource(m, m.open)
	defer src.Close()
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	var r Reply
	off := int64(0)
	read := func() {
		require.NoError(t, h.ReadAt(context.Background(), &r, off, 64<<10))
		off += 64 << 10
		r.Release()
	}
	read()
	// A few allocations are the view's, when it moves to a new page, and this test's own.
	require.Less(t, testing.AllocsPerRun(50, read), 30.0, "131 records a read")
}

func TestOutOfBoundsReadsAreErrors(t *testing.T) {
	m := &memory{shards: 1, lends: 1, bytes: [][]byte{{1}}, hashes: []uint64{0}}
	v := defaultView(t, 0, 1)
	src := newSource(m, m.open)
	defer src.Close()
	h := src.Set(v, nil).Open(0, Data)
	defer h.Close()
	var r Reply
	require.ErrorContains(t, h.ReadAt(context.Background(), &r, -1, 1), "read of 1 bytes at -1")
	require.Error(t, h.ReadAt(context.Background(), &r, 0, MaxReadBytes+1))
	require.Panics(t, func() { src.Set(v, nil).Open(1, Data) })
}

func TestLayoutStopsWhenSourceCloses(t *testing.T) {
	m := &memory{shards: 1, lends: 1, bytes: [][]byte{{1}}, hashes: []uint64{0}}
	v := defaultView(t, 0, 1)
	src := newSource(m, m.open)
	src.Close()
	_, err := src.Set(v, nil).SizeBytes(context.Background(), 0, Data)
	require.ErrorIs(t, err, ErrClosed)
}

// A shard may have been written again after it was indexed. A record that then has another size must
// not shift or fill what follows it in the stream.
func TestRecordOfAnotherSizeThanIndexedIsAnError(t *testing.T) {
	const other = 37
	for _, sizeBytes := range []int{199, 201, 0, 4000} {
		indexed, stored := equalRecords(100, 200), equalRecords(100, 200)
		stored.bytes[other] = make([]byte, sizeBytes)
		v := defaultView(t, 0, 100)
		want, ends := naive(indexed, v, 0)
		records := make([]uint64, v.Count(0))
		v.Records(0, 0, records)
		src := newSource(indexed, stored.open)
		defer src.Close()
		h := src.Set(v, nil).Open(0, Data)
		defer h.Close()
		for k, record := range records {
			begin := ends[k] - 200
			if record != other {
				checkRead(t, h, want[Data], begin, 200)
				continue
			}
			var r Reply
			require.ErrorContains(t, h.ReadAt(t.Context(), &r, begin, 200), fmt.Sprintf("record %d of worker 0 has %d bytes where the index says 200", k, sizeBytes))
			require.Zero(t, r.Len())
		}
	}
}
