package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// presented is a dataset in memory whose streams have one row per record.
type presented struct {
	*memory
	row     int
	refuses func(record []byte) bool // nil: refuses none
	made    atomic.Int64             // number of rows
}

func (p *presented) Unpacker() format.Format { return presenting{p.memory, p} }

func (p *presented) Shard(i int) catalog.Shard {
	return catalog.Shard{IDPrefix: uint64(i) << 40, Object: storage.Object{Path: fmt.Sprintf("shard-%d", i)}}
}

// presenting is its format, without renaming.
type presenting struct {
	format.Format
	p *presented
}

func (f presenting) Prologue(n uint64) []byte      { return f.p.Prologue(n) }
func (f presenting) Epilogue(n uint64) []byte      { return f.p.Epilogue(n) }
func (f presenting) RowBytes() int                 { return f.p.row }
func (presenting) RowType() (descr, remark string) { return "", "" }

var errRefused = errors.New("a record that makes no row")

func (f presenting) Present(dst, record []byte) error {
	f.p.made.Add(1)
	if f.p.refuses != nil && f.p.refuses(record) {
		return errRefused
	}
	rowOf(dst, record)
	return nil
}

// rowOf fills dst with bytes that depend on each byte of the record.
func rowOf(dst, record []byte) {
	sum := fnv.New64a()
	_, _ = sum.Write(record)
	h := sum.Sum64()
	for i := range dst {
		dst[i] = byte(h >> (i % 8 * 8))
		if i%8 == 7 {
			h = h*6364136223846793005 + 1
		}
	}
}

// naiveRows returns the three files of a worker.
func naiveRows(p *presented, w uint64, set *Set) (files [3][]byte) {
	v := set.View()
	n := v.Count(w)
	records := make([]uint64, n)
	v.Records(w, 0, records)
	data := p.Prologue(n)
	for _, r := range records {
		files[Offsets] = binary.LittleEndian.AppendUint64(files[Offsets], uint64(len(data)))
		row := make([]byte, p.row)
		rowOf(row, p.bytes[r])
		data = append(data, row...)
		files[IDs] = binary.BigEndian.AppendUint64(files[IDs], r%uint64(p.shards)<<40)
		files[IDs] = binary.BigEndian.AppendUint64(files[IDs], r/uint64(p.shards))
	}
	files[Offsets] = binary.LittleEndian.AppendUint64(files[Offsets], uint64(len(data)))
	files[Data] = append(data, p.Epilogue(n)...)
	return files
}

// Rows have one size, whatever the records' sizes; the reader may lend records in order or not.
func TestRowsEqualNaiveConcatenationForEveryReadSizeAndOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &presented{memory: drawDataset(t), row: rapid.SampledFrom([]int{1, 7, 1000, 36_176}).Draw(t, "row")}
		v := drawView(t, len(p.bytes))
		src := newSource(p, p.open)
		defer src.Close()
		set := src.Set(v, nil)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "reads"), 1))
		ctx := context.Background()
		for w := range v.Deal().Workers {
			for kind, file := range naiveRows(p, w, set) {
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
			for range 20 {
				before := len(p.Prologue(v.Count(w)))
				mark := rng.Int64N(int64(before) + int64(v.Count(w))*int64(p.row) + 2)
				got, err := set.WholeRecords(ctx, w, Data, mark)
				require.NoError(t, err)
				require.Equal(t, min(v.Own(w), uint64(max(int(mark)-before, 0)/p.row)), got)
			}
		}
		require.Zero(t, src.kept.Load(), "closed handles keep no rows")
	})
}

func manyPresented(records, row int) *presented {
	p := &presented{memory: &memory{shards: 3, lends: 100}, row: row}
	for i := range records {
		p.bytes = append(p.bytes, binary.LittleEndian.AppendUint64(make([]byte, i%50), uint64(i)))
		p.hashes = append(p.hashes, 0)
	}
	return p
}

func TestConcurrentReadersPresentSameRows(t *testing.T) {
	p := manyPresented(4000, 14_672)
	src := newSource(p, p.open)
	defer src.Close()
	set := src.Set(defaultView(t, 0, 1000, 4000), nil)
	want := naiveRows(p, 0, set)[Data]
	shared := set.Open(0, Data)
	defer shared.Close()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() { // each with its own handle, front to back
			h := set.Open(0, Data)
			defer h.Close()
			for off := 0; off < len(want); off += 300_000 + i {
				checkRead(t, h, want, int64(off), 300_000+i)
			}
		})
		group.Go(func() { // and all on one handle, at random places
			for off := i * 100_000; off < len(want); off += 777_777 * (i + 1) {
				checkRead(t, shared, want, int64(off), 50_000)
			}
		})
	}
	group.Wait()
}

// Small reads go through a row in many steps; the row is made once.
func TestPartiallyReadRowIsBuiltOnce(t *testing.T) {
	p := manyPresented(100, 10_000)
	src := newSource(p, p.open)
	defer src.Close()
	set := src.Set(defaultView(t, 0, 100), nil)
	want := naiveRows(p, 0, set)[Data]
	h := set.Open(0, Data)
	defer h.Close()
	for off := 0; off < 200_000; off += 512 { // before anything is read ahead
		checkRead(t, h, want, int64(off), 512)
	}
	require.LessOrEqual(t, p.made.Load(), int64(21))
	require.Positive(t, src.kept.Load())
}

func TestPresentingAllocatesNothing(t *testing.T) {
	p := manyPresented(3000, 14_672)
	src := newSource(p, lendsWithout{p}.open)
	defer src.Close()
	src.recent.cores = 1 // no read-ahead
	h := src.Set(defaultView(t, 0, 3000), nil).Open(0, Data)
	defer h.Close()
	var r Reply
	off := int64(0)
	read := func() {
		require.NoError(t, h.ReadAt(t.Context(), &r, off, 300_001))
		off += int64(r.Len())
		r.Release()
	}
	for range 10 {
		read()
	}
	require.Zero(t, testing.AllocsPerRun(100, read), "of 20 rows, one of them in two parts")
}

// asked counts the calls of Done.
type asked struct {
	context.Context
	times int
}

func (a *asked) Done() <-chan struct{} {
	a.times++
	return a.Context.Done()
}

// Watching for the end of a request takes a goroutine, which is only worthwhile for reads that
// wait.
func TestNonBlockingReadsAreNotWatched(t *testing.T) {
	p := manyPresented(3000, 14_672)
	src := newSource(p, lendsWithout{p}.open)
	defer src.Close()
	src.recent.cores = 1 // no read-ahead
	h := src.Set(defaultView(t, 0, 3000), nil).Open(0, Data)
	defer h.Close()
	var r Reply
	first := &asked{Context: t.Context()}
	require.NoError(t, h.ReadAt(first, &r, 0, 300_000))
	require.Positive(t, first.times, "the layout has to be computed")
	next := &asked{Context: t.Context()}
	require.NoError(t, h.ReadAt(next, &r, 300_000, 300_000))
	require.Zero(t, next.times)
	r.Release()
}

// Records of any size are prefetched, wherever in their pages they begin and end, including empty
// and last ones.
func TestRecordsOfAnySizeArePrefetched(t *testing.T) {
	memory := make([]byte, 4096+2*approachBytes)
	for at := range 4096 {
		for _, n := range []int{0, 1, 63, 64, 4095, 4096, approachBytes - 1, 2 * approachBytes} {
			some := memory[at:][:n]
			approach([][]byte{nil, some, some})
		}
	}
	approach([][]byte{nil, nil, nil})
	approach([][]byte{memory})
	approach(nil)
}

// lendsWithout is a lender that allocates nothing.
type lendsWithout struct{ p *presented }

func (l lendsWithout) open(seq sequence) reader {
	return &quietReader{p: l.p, seq: seq, numbers: make([]uint64, 256)}
}

type quietReader struct {
	p       *presented
	seq     read.Sequence
	numbers []uint64
}

func (q *quietReader) Read(_ context.Context, k uint64, n int, l *read.Loan) error {
	for _, record := range q.numbers[:q.seq.Records(k, q.numbers[:min(n, len(q.numbers))])] {
		l.Records = append(l.Records, q.p.bytes[record])
	}
	return nil
}

func (*quietReader) Contiguous() bool { return false }
func (*quietReader) Busy() bool       { return false }
func (*quietReader) Close()           {}

func TestRecordThatCannotBeARowIsNamed(t *testing.T) {
	p := manyPresented(100, 1000)
	src := newSource(p, p.open)
	defer src.Close()
	set := src.Set(defaultView(t, 0, 100), nil)
	want := naiveRows(p, 0, set)[Data]
	p.refuses = func(record []byte) bool { return binary.LittleEndian.Uint64(record[len(record)-8:]) == 50 }
	h := set.Open(0, Data)
	defer h.Close()
	numbers := make([]uint64, 100)
	set.View().Records(0, 0, numbers)
	var r Reply
	failed := 0
	for k, number := range numbers {
		off := int64(len(p.Prologue(100)) + 1000*k)
		for _, part := range [][2]int64{{0, 1000}, {10, 500}} {
			err := h.ReadAt(t.Context(), &r, off+part[0], int(part[1]))
			if number == 50 {
				failed++
				require.ErrorIs(t, err, errRefused)
				require.ErrorContains(t, err, "shard-2: record 16: ", "the 51st of records dealt to 3 shards")
				require.Zero(t, r.Len())
				continue
			}
			require.NoError(t, err)
			r.Release()
			checkRead(t, h, want, off+part[0], int(part[1]))
		}
	}
	require.Equal(t, 2, failed)
}

// If walkers may keep no more rows, rows that are read in parts are made again.
func TestRowsWithoutSpaceAreRebuilt(t *testing.T) {
	p := manyPresented(50, 10_000)
	src := newSource(p, p.open)
	defer src.Close()
	src.kept.Store(maxKeptBytes)
	set := src.Set(defaultView(t, 0, 50), nil)
	want := naiveRows(p, 0, set)[Data]
	h := set.Open(0, Data)
	for off := 0; off < len(want); off += 3333 {
		checkRead(t, h, want, int64(off), 3333)
	}
	h.Close()
	require.EqualValues(t, maxKeptBytes, src.kept.Load())
}

// lendsAltered lends each loan twice: first with bytes in a mapped file that has been altered
// meanwhile, then with the right ones.
type lendsAltered struct {
	lendsWithout
	lost error // error for the altered bytes
}

func (l lendsAltered) open(seq sequence) reader {
	return &alteredReader{reader: l.lendsWithout.open(seq), lost: l.lost}
}

type alteredReader struct {
	reader
	lost  error
	lends int
}

func (a *alteredReader) Read(ctx context.Context, k uint64, n int, l *read.Loan) error {
	a.lends++
	l.Lender = alteredBytes{altered: a.lends%2 == 1, lost: a.lost}
	err := a.reader.Read(ctx, k, n, l)
	if a.lends%2 == 1 {
		for i, record := range l.Records {
			l.Records[i] = make([]byte, len(record))
		}
	}
	return err
}

type alteredBytes struct {
	altered bool
	lost    error
}

func (alteredBytes) Mapped() bool   { return true }
func (alteredBytes) Leased() bool   { return true }
func (b alteredBytes) Fault() error { return b.Check() }
func (alteredBytes) Release()       {}
func (b alteredBytes) Check() error {
	if b.altered {
		return b.lost
	}
	return nil
}

// If altered bytes make no row, the error names the file, not the record, which may be intact: if a
// copy was lost, the record is read again.
func TestAlteredBytesAreNotBlamedOnRecord(t *testing.T) {
	for _, part := range []int{1000, 500} {
		p := manyPresented(100, 1000)
		p.refuses = func(record []byte) bool { return bytes.Count(record, []byte{0}) == len(record) }
		for i, record := range p.bytes {
			p.bytes[i] = append([]byte{1}, record...)
		}
		lost := fmt.Errorf("lost: %w", read.ErrReadAgain)
		src := newSource(p, lendsAltered{lendsWithout{p}, lost}.open)
		set := src.Set(defaultView(t, 0, 100), nil)
		want := naiveRows(p, 0, set)[Data]
		off := int64(len(p.Prologue(100)))
		h := set.Open(0, Data)
		checkRead(t, h, want, off, part)
		h.Close()
		src.Close()

		changed := errors.New("the file has changed")
		src = newSource(p, lendsAltered{lendsWithout{p}, changed}.open)
		h = src.Set(defaultView(t, 0, 100), nil).Open(0, Data)
		var r Reply
		require.Equal(t, changed, h.ReadAt(t.Context(), &r, off, part))
		h.Close()
		src.Close()
	}
}
