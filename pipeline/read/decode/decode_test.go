package decode

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// owner has a shard whose records are a piece each, and does what a test says when a
// decoder asks.
type owner struct {
	t    *testing.T
	data *readtest.Dataset

	mu      sync.Mutex
	passing func(piece int) *Load
	room    func(l *Load) bool
	came    map[int]int // pieces, and how often they came
	brought int         // loads that came, whatever they are of
	failed  map[int]error
	change  sync.Cond
}

// loadOf returns a load of a range of a shard, with its memory.
func loadOf(number, shard int, offset, size int64) *Load {
	l := chunkmap.Layout{Ranges: []chunkmap.Range{{OffsetBytes: offset, SizeBytes: size}}, SizeBytes: size, ReachBytes: offset + size}
	return &Load{Piece: number, Shard: shard, Layout: l, Memory: make([]byte, size)}
}

// load returns a load of one record.
func (o *owner) load(number int) *Load {
	x := o.data.Index.ExtentTable[number]
	return loadOf(number, x.Shard, x.OffsetBytes, x.SizeBytes)
}

func (o *owner) PiecesOf(shard int) (first, last int) {
	s := o.data.Index.ShardTable[shard]
	return int(s.First), int(s.First + s.Records - 1)
}

func (o *owner) Room(l *Load) bool { return o.room == nil || o.room(l) }
func (o *owner) Passing(piece int) *Load {
	if o.passing == nil {
		return nil
	}
	return o.passing(piece)
}
func (o *owner) Next(int, int) int { return -1 }
func (o *owner) Came(l *Load) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.brought++
	if string(l.Memory) == string(o.data.Records[l.Piece]) {
		o.came[l.Piece]++
	}
	o.change.Broadcast()
}
func (o *owner) Failed(_ int, loads []*Load, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range loads {
		o.failed[l.Piece] = err
	}
	o.change.Broadcast()
}
func (o *owner) Shrink()                   {}
func (o *owner) News(News)                 {}
func (o *owner) WantedSoon(int, bool) bool { return false }

// ended waits until so many loads have come or failed.
func (o *owner) ended(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.came)+len(o.failed) < n {
		o.change.Wait()
	}
}

func newOwner(t *testing.T, s readtest.Shape) (*owner, *Set) {
	o := &owner{t: t, data: readtest.Make(t, s), came: map[int]int{}, failed: map[int]error{}}
	o.change.L = &o.mu
	store := readtest.OpenStorage(t, o.data.Dir)
	began := time.Now()
	c := &options.Options{ReadTimeout: time.Minute, Decoders: 8}
	c.SetDefaults()
	c.SetInput(o.data.Index, store)
	c.Survey = &choose.Survey{Limits: choose.Limits{DecoderBytes: 64 << 20, RawBlockBytes: 16 << 10}}
	starts := make([]uint64, len(o.data.Records)+1)
	for i := range starts {
		starts[i] = uint64(i)
	}
	table, err := chunkmap.New(starts, uint64(len(o.data.Records)))
	require.NoError(t, err)
	b := budget.New(64 << 20)
	set := NewSet(c, &chunkmap.Map{Index: o.data.Index, Table: table, Part: chunkmap.All{}}, b, func() int64 { return int64(time.Since(began)) + 1 }, o)
	t.Cleanup(func() {
		set.Stop()
		set.Close()
		require.Equal(t, Stats{DecodedBytes: set.decoded.Load(), PassedBytes: set.Stats().PassedBytes}, set.Stats(), "nothing is left")
		require.Zero(t, b.Charged(), "what was charged is given back")
	})
	return o, set
}

var oneMember = readtest.Shape{Codec: "gz", Shards: 1, Records: 100, MaxBytes: 2000}

func TestLoadsOfShardAreServedInOnePass(t *testing.T) {
	o, set := newOwner(t, oneMember)
	first := set.Assign(o.load(10), budget.Demand)
	o.ended(1)
	for _, n := range []int{60, 30, 90} {
		set.Assign(o.load(n), budget.Demand)
	}
	o.ended(4)
	require.Equal(t, map[int]int{10: 1, 30: 1, 60: 1, 90: 1}, o.came)
	require.NotNil(t, first)
	require.LessOrEqual(t, set.Stats().DecodedBytes, uint64(2*o.data.DecodedBytes()), "once, and once more for a load that came late")
}

// While a decoder asks whether a piece is to be kept, its owner may be giving it a load
// of that very piece, or of one before it.
func TestLoadAddedDuringKeepCallbackIsServed(t *testing.T) {
	o, set := newOwner(t, oneMember)
	var given, earlier *Decoder
	o.passing = func(piece int) *Load {
		if piece == 40 && given == nil {
			given = set.Assign(o.load(40), budget.Demand)
			earlier = set.Assign(o.load(20), budget.Demand)
		}
		return nil
	}
	d := set.Assign(o.load(80), budget.Demand)
	o.ended(3)
	require.Same(t, d, given, "it has not passed the piece yet")
	require.NotSame(t, d, earlier, "it is behind that one")
	require.Equal(t, map[int]int{20: 1, 40: 1, 80: 1}, o.came)
}

func TestOpportunisticLoadsAreServedInPassing(t *testing.T) {
	o, set := newOwner(t, oneMember)
	o.passing = func(piece int) *Load {
		if piece%10 == 0 {
			return o.load(piece)
		}
		return nil
	}
	set.Assign(o.load(35), budget.Demand)
	o.ended(5)
	require.Equal(t, map[int]int{0: 1, 10: 1, 20: 1, 30: 1, 35: 1}, o.came)
}

// A decoder that has come to a load for which there is no memory is where it was.
func TestLoadWithoutMemoryDoesNotAdvanceDecoder(t *testing.T) {
	o, set := newOwner(t, oneMember)
	refused := make(chan struct{})
	o.room = func(l *Load) bool {
		if l.Piece != 50 {
			return true
		}
		close(refused)
		o.Failed(0, []*Load{l}, budget.ErrNoRoom)
		return false
	}
	d := set.Assign(o.load(50), budget.Prefetch)
	<-refused
	o.ended(1)
	require.Eventually(t, func() bool {
		set.mu.Lock()
		defer set.mu.Unlock()
		return !d.running
	}, time.Minute, time.Millisecond)
	require.Same(t, d, set.Assign(o.load(51), budget.Demand))
	o.ended(2)
	require.Equal(t, map[int]int{51: 1}, o.came)
	require.Equal(t, map[int]error{50: budget.ErrNoRoom}, o.failed)
}

func TestLoadIsCancellableUntilItsDecoderReachesIt(t *testing.T) {
	o, set := newOwner(t, oneMember)
	asked, answer := make(chan struct{}), make(chan struct{})
	o.passing = func(piece int) *Load {
		if piece == 5 {
			close(asked)
			<-answer
		}
		return nil
	}
	near, far := o.load(6), o.load(70)
	d := set.Assign(near, budget.Demand)
	<-asked
	require.Same(t, d, set.Assign(far, budget.Prefetch))
	require.True(t, set.TakeBack(far))
	require.False(t, set.TakeBack(far))
	close(answer)
	o.ended(1)
	require.False(t, set.TakeBack(near))
	require.Equal(t, map[int]int{6: 1}, o.came)
}

func TestStoppedDecodersEndTheirLoads(t *testing.T) {
	o, set := newOwner(t, oneMember)
	o.passing = func(piece int) *Load {
		if piece == 5 {
			set.Stop()
		}
		return nil
	}
	set.Assign(o.load(60), budget.Demand)
	o.ended(1)
	require.Equal(t, map[int]error{60: budget.ErrClosed}, o.failed)
}

func TestWholeShardIsDecodedOnRequest(t *testing.T) {
	for _, codec := range []string{"gz", "zst", "lz4"} {
		o, set := newOwner(t, readtest.Shape{Codec: codec, Shards: 1, Records: 50, MaxBytes: 2000, Member: 7})
		var got bytes.Buffer
		require.NoError(t, set.Through(0, new(atomic.Int64), new(meter.WaitClock), func(b []byte) error {
			require.Equal(t, 1, set.Stats().Open)
			got.Write(b)
			return nil
		}))
		for i, x := range o.data.Index.ExtentTable {
			require.Equal(t, string(o.data.Records[i]), string(got.Bytes()[x.OffsetBytes:x.OffsetBytes+x.SizeBytes]))
		}
	}
}

// toldHandler does something when it is told of a warning.
type toldHandler struct {
	slog.Handler
	do func()
}

func (h toldHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h toldHandler) Handle(context.Context, slog.Record) error {
	h.do()
	return nil
}

// Who is told that a shard is decoded again and again may ask how often.
func TestSlowReadCallbackDoesNotBlock(t *testing.T) {
	o, set := newOwner(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 3, MaxBytes: 600_000, SameSize: true})
	told := make(chan Stats, 1)
	set.o.Log = slog.New(toldHandler{do: func() { told <- set.Stats() }})
	for range 2 * slowPasses { // two of three records are passed each time
		set.Assign(o.load(2), budget.Demand)
		set.goroutines.Wait()
		set.mu.Lock()
		for set.closeOldest() {
		}
		set.mu.Unlock()
	}
	require.Positive(t, (<-told).PassedBytes)
}

func TestDecodersAreBusyWhileUsingAllCores(t *testing.T) {
	_, set := newOwner(t, oneMember)
	require.False(t, set.Busy())
	for i := range set.Cores() {
		require.False(t, set.Busy(), "%d cores", i)
		set.TakeCore()
	}
	require.True(t, set.Busy())
	set.GiveCore()
	require.False(t, set.Busy())
	for range set.Cores() - 1 {
		set.GiveCore()
	}
}
