package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// pieces returns a table of pieces of that many records each.
func pieces(t testing.TB, records, each uint64) *chunkmap.Table {
	var starts []uint64
	for r := uint64(0); r < records; r += each {
		starts = append(starts, r)
	}
	x, err := chunkmap.New(append(starts, records), records)
	require.NoError(t, err)
	return &x
}

func sequence(n int) readtest.List {
	l := make(readtest.List, n)
	for i := range l {
		l[i] = uint64(i)
	}
	return l
}

// stock loads what it is asked for at once, and records it.
type stock struct {
	table   *chunkmap.Table
	has     map[int]bool
	started []int
	bytes   int64 // of a piece
	room    int   // pieces that may be begun
	calls   int   // of Cancel

	slow   bool // what is begun arrives with land
	flying map[int]bool
}

func (s *stock) land() {
	for p := range s.flying {
		s.has[p] = true
	}
	clear(s.flying)
}

func (s *stock) Holds(record uint64) bool {
	p := s.table.Of(record)
	return s.has[p] || s.flying[p]
}

func (s *stock) Have(records []uint64) int {
	for i, r := range records {
		if !s.has[s.table.Of(r)] {
			return i
		}
	}
	return len(records)
}

func (s *stock) Start(record uint64, more bool) (int64, bool) {
	p := s.table.Of(record)
	if s.has[p] || s.flying[p] {
		return 0, true
	}
	if !more || s.room == 0 {
		return 0, false
	}
	s.room--
	if s.slow {
		s.flying[p] = true
	} else {
		s.has[p] = true
	}
	s.started = append(s.started, p)
	return s.bytes, true
}

func (s *stock) Cancel() { s.calls++ }

func newStock(table *chunkmap.Table) *stock {
	return &stock{table: table, has: map[int]bool{}, flying: map[int]bool{}, bytes: 100, room: 1 << 30}
}

func TestRandomReadsPrefetchNothingAndSequentialReadsPrefetchMore(t *testing.T) {
	x := pieces(t, 100_000, 10)
	s, r := newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
	r.Advance(s, 50_000, 5, false, 0, 1, 32<<20)
	require.Equal(t, []int{5000}, s.started, "one sample, one piece")
	var far []uint64
	for k := uint64(50_005); k < 50_025; k += 5 {
		r.Advance(s, k, 5, false, 0, 1, 32<<20)
		far = append(far, r.Windows()[0].Scanned-k)
	}
	require.Equal(t, []uint64{69, 133, 261, 517}, far)
	require.Zero(t, s.calls)
}

func TestJumpCancelsPrefetchButSeekWithinWindowDoesNot(t *testing.T) {
	x := pieces(t, 100_000, 10)
	s, r := newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
	for k := uint64(0); k < 100; k += 5 {
		r.Advance(s, k, 5, false, 0, 1, 32<<20)
	}
	to := r.Windows()[0].Scanned - 1
	require.Greater(t, to, uint64(nearRecords+100))
	r.Advance(s, to, 5, false, 0, 1, 32<<20)
	require.Zero(t, s.calls)
	require.Len(t, r.Windows(), 1)
	for i, k := range []uint64{60_000, 70_000, 80_000, 90_000} {
		r.Advance(s, k, 5, false, 0, 1, 32<<20)
		require.Equal(t, i+1, s.calls)
	}
	require.Len(t, r.Windows(), maxWindows)
}

// For short records package stream asks for thousands ahead of where its reader is.
func TestSequentialStepLimitDependsOnRecordSize(t *testing.T) {
	for _, c := range []struct{ recordBytes, near int64 }{{0, 1024}, {1 << 20, 1024}, {4 << 10, 1024}, {1 << 10, 4096}, {100, 41943}} {
		near := Near(c.recordBytes)
		require.EqualValues(t, c.near, near, "records of %d bytes", c.recordBytes)
		x := pieces(t, 200_000, 10)
		s, r := newStock(x), NewReader(sequence(200_000), nil, 0, near)
		r.Advance(s, 100_000, 5, false, 0, 1, 1000)
		for range 3 { // one place copies ahead, the reader is at the other one
			r.Advance(s, 100_000+near, 5, false, 0, 1, 1000)
			r.Advance(s, 100_005, 5, false, 0, 1, 1000)
		}
		require.Zero(t, s.calls)
		require.Len(t, r.Windows(), 1)
		r.Advance(s, 100_000-10, 5, false, 0, 1, 1000)
		require.Equal(t, 1, s.calls, "further back is elsewhere")
	}
}

func TestReaderThatJumpsAndReturnsStaysWithinPrefetchBound(t *testing.T) {
	for _, slow := range []bool{false, true} {
		x := pieces(t, 1_000_000, 1)
		s, r := newStock(x), NewReader(sequence(1_000_000), nil, 0, nearRecords)
		s.slow = slow // what is being loaded at a jump arrives before the next call
		const limit = 2000 / 100
		for i := range uint64(100) {
			k := 5 * i
			r.Advance(s, k, 5, false, 0, 1, 100*limit)
			r.Advance(s, 500_000+4000*i, 1, false, 0, 1, 100*limit) // another place each time
			s.land()
			ahead := 0
			for _, p := range s.started {
				if uint64(p) >= k+5 && p < 400_000 {
					ahead++
				}
			}
			require.LessOrEqual(t, ahead, limit, "ahead of record %d", k)
		}
		require.Equal(t, 100, s.calls)
	}
}

func TestCancelledPrefetchIsStartedAgain(t *testing.T) {
	x := pieces(t, 100_000, 1)
	s, r := newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
	for k := uint64(0); k < 50; k += 5 {
		r.Advance(s, k, 5, false, 0, 1, 2000)
	}
	begun := len(s.started)
	for p := range s.has {
		if p >= 50 {
			delete(s.has, p) // they had not arrived
		}
	}
	r.Advance(s, 60_000, 1, false, 0, 1, 2000)
	r.Advance(s, 50, 5, false, 0, 1, 2000)
	require.GreaterOrEqual(t, len(s.started)-begun, 15)
	require.Subset(t, s.started[begun:], []int{51, 52, 55, 60})
}

func TestPrefetchStaysWithinItsBounds(t *testing.T) {
	x := pieces(t, 100_000, 1)
	s, r := newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
	for k := uint64(0); k < 500; k += 5 {
		r.Advance(s, k, 5, false, 0, 1, 2000)
		ahead := 0
		for _, p := range s.started {
			if uint64(p) >= k {
				ahead++
			}
		}
		require.LessOrEqual(t, ahead, 2000/100)
	}
	// Without a limit of bytes the limit is in pieces.
	s, r = newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
	for range 20 {
		r.Advance(s, 0, 5, false, 0, 1, 1<<40)
		r.Advance(s, 5, 5, false, 0, 1, 1<<40)
		r.Advance(s, 10, 5, false, 0, 1, 1<<40)
	}
	require.LessOrEqual(t, len(s.started), MaxPieces+10)
}

// If there was no room the reader tries again when it comes closer.
func TestPiecesWithoutRoomAreRequestedAgain(t *testing.T) {
	x := pieces(t, 10_000, 10)
	s, r := newStock(x), NewReader(sequence(10_000), nil, 0, nearRecords)
	s.room = 1
	r.Advance(s, 0, 10, false, 0, 1, 32<<20)
	r.Advance(s, 10, 10, false, 0, 1, 32<<20)
	require.Equal(t, []int{0}, s.started)
	s.room = 3
	r.Advance(s, 10, 10, false, 0, 1, 32<<20)
	require.Equal(t, []int{0, 1, 2, 3}, s.started)
}

func TestPiecesAreCountedUntilReaderReachesThem(t *testing.T) {
	x := pieces(t, 10_000, 10)
	c := NewCounts(x)
	s := newStock(x)
	r := NewReader(sequence(10_000), c, 2000, nearRecords)
	r.Advance(s, 0, 5, false, 0, 1, 32<<20)
	require.True(t, c.Wanted(0))
	require.True(t, c.Wanted(199))
	require.False(t, c.Wanted(200))
	r.Advance(s, 4000, 5, false, 0, 1, 32<<20)
	require.False(t, c.Wanted(0), "it has gone elsewhere")
	require.True(t, c.Wanted(400))
	other := NewReader(sequence(10_000), c, 2000, nearRecords)
	other.Advance(newStock(x), 4000, 5, false, 0, 2, 32<<20)
	r.Close()
	r.Close()
	require.True(t, c.Wanted(400), "the other one comes to it")
	other.Close()
	for p := range x.Len() {
		require.False(t, c.Wanted(p), "piece %d", p)
	}
	require.Zero(t, c.wanted.Load())
}

func TestStepBackKeepsDistantPrefetch(t *testing.T) {
	x := pieces(t, 10_000, 10)
	c := NewCounts(x)
	r := NewReader(sequence(10_000), c, 2000, 3000)
	r.Advance(newStock(x), 4000, 5, false, 0, 1, 32<<20)
	require.True(t, c.Wanted(599))
	r.Advance(newStock(x), 2500, 5, false, 0, 1, 32<<20)
	require.True(t, c.Wanted(599), "it comes to it soon, and was there already")
	r.Close()
	require.Zero(t, c.wanted.Load())
}

func TestConcurrentlyWantedPiecesAreBounded(t *testing.T) {
	x := pieces(t, 10_000, 1)
	c := NewCounts(x)
	c.Bound(40)
	r := NewReader(sequence(10_000), c, 5000, nearRecords)
	for k := uint64(0); k < 1000; k += 7 {
		r.Advance(newStock(x), k, 7, false, 0, 1, 32<<20)
		require.True(t, c.Wanted(int(k)), "what comes next always is")
		require.LessOrEqual(t, c.wanted.Load(), int64(40+c.step()))
	}
	r.Close()
	require.Zero(t, c.wanted.Load())
}

// If it were refilled only when all of it has been read, storage would be idle until then.
func TestPrefetchRefillsWhileReading(t *testing.T) {
	const each, ahead = 10, 512
	for _, lack := range []string{"bytes of the window", "room in memory"} {
		x := pieces(t, 100_000, each)
		s, r := newStock(x), NewReader(sequence(100_000), nil, 0, nearRecords)
		limit := int64(1 << 40)
		if lack == "bytes of the window" {
			limit = ahead * s.bytes
		} else {
			s.room = ahead
		}
		for k := uint64(0); k < 40_000; k += 5 {
			if s.room < ahead && k > 0 && k%each == 0 {
				s.room++ // what was read is dropped
			}
			r.Advance(s, k, 5, false, 0, 1, limit)
			if k > 10_000 {
				require.Greater(t, r.Windows()[0].Scanned, k+each*ahead*9/10, "%s, at %d", lack, k)
			}
		}
	}
}

// A service is told what will be read in large steps, each of which is read ahead at once.
func TestPlannedPiecesAreDue(t *testing.T) {
	w := window{next: 100, records: farRecords, scanned: 5000}
	require.False(t, w.due(110, 5000, 5000), "there is no more")
	require.True(t, w.due(110, 5001, 5001))
	require.False(t, w.due(110, 5001, 9000), "not planned is what bounds it")
	w.goOn = 150
	require.False(t, w.due(110, 9000, 9000), "there was no room")
	w.next = 150
	require.True(t, w.due(110, 9000, 9000))
	require.True(t, w.due(5001, 9000, 20_000), "it is asked for")
}
