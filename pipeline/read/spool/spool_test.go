package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// bufferBytes is how much the decoders of an owner decode at a time.
const bufferBytes = 256 << 10

// shardBytes is the size of each shard of an owner, which is one piece of one record.
const shardBytes = 2*bufferBytes + 5000

// owner has shards whose bytes follow from their number, and writes down the news.
type owner struct {
	hold chan struct{} // decoders wait for it, when set

	mu      sync.Mutex
	there   []Arrival
	failed  map[Load]error
	without []Load
	change  sync.Cond
	soon    map[int]bool
	fails   error // of decoders
	decoded int
	budget  budget.Budget
}

func (o *owner) WantedSoon(shard int, _ bool) bool { return o.soon[shard] }

func (o *owner) News(n News) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.there = append(o.there, n.There...)
	o.without = append(o.without, n.Without...)
	for _, l := range n.Failed {
		o.failed[l] = n.Err
	}
	o.change.Broadcast()
}

// wait waits until something holds.
func (o *owner) wait(holds func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !holds() {
		o.change.Wait()
	}
}

// arrived is how many loads have come.
func (o *owner) arrived() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.there)
}

func (o *owner) arrival(n int) Arrival {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.there[n]
}

func byteOf(shard int, off int64) byte { return byte(off*7+off/255) ^ byte(shard) }

// through makes a shard's bytes.
func (o *owner) through(shard int, _ *atomic.Int64, _ *meter.WaitClock, write func([]byte) error) error {
	o.mu.Lock()
	o.decoded++
	o.mu.Unlock()
	for pos := int64(0); pos < shardBytes; {
		b := make([]byte, min(bufferBytes, shardBytes-pos))
		if o.hold != nil {
			<-o.hold
		}
		for i := range b {
			b[i] = byteOf(shard, pos)
			pos++
		}
		o.mu.Lock()
		err := o.fails
		o.mu.Unlock()
		if err == nil {
			err = write(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// want is a load of a shard's first bytes.
type want struct {
	shard  int
	end    int64
	waited bool
}

func (w *want) Shard() int                        { return w.shard }
func (w *want) Bounds() (start, end, reach int64) { return 0, w.end, w.end }
func (w *want) Waited() bool                      { return w.waited }
func (w *want) ranges() iter.Seq2[int64, int64] {
	return func(yield func(off, size int64) bool) { yield(0, w.end) }
}

func newOwner(t *testing.T, shards, room int) (*owner, *Spool) {
	o := &owner{failed: map[Load]error{}, soon: map[int]bool{}}
	o.change.L = &o.mu
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	shelf, err := diskcache.NewSpool(readtest.DiskDir(t), int64(room)*diskcache.RoomBytes(shardBytes), 1<<20, engine, nil)
	require.NoError(t, err)
	began := time.Now()
	x := new(readtest.Index)
	for i := range shards {
		x.ShardTable = append(x.ShardTable, catalog.Shard{Object: storage.Object{Path: fmt.Sprint("shard ", i)}, First: uint64(i), Records: 1, DecodedBytes: shardBytes})
	}
	c := &options.Options{Decoders: 2}
	c.SetDefaults()
	c.Survey = &choose.Survey{Limits: choose.Limits{DecoderBytes: 1 << 30}}
	p := New(c, &chunkmap.Map{Index: x, Part: chunkmap.All{}}, o.through, &o.budget, func() int64 { return int64(time.Since(began)) + 1 }, shelf, o)
	t.Cleanup(func() {
		p.Stop()
		p.Wait()
		_, err := p.Close()
		require.NoError(t, errors.Join(err, engine.Close()))
	})
	return o, p
}

// read reads a load from its place, and compares.
func read(t *testing.T, p *Spool, s *Place, w *want) {
	t.Helper()
	mem := make([]byte, w.end)
	done := make(chan error)
	p.Read(s, diskcache.Reading{Ranges: w.ranges(), Memory: mem, Done: func(err error) { done <- err }})
	require.NoError(t, <-done)
	for i := range w.end {
		if mem[i] != byteOf(w.shard, i) {
			require.Equal(t, byteOf(w.shard, i), mem[i], "byte %d", i)
		}
	}
}

func TestLoadEndsWhenItsBytesAreSpooled(t *testing.T) {
	o, p := newOwner(t, 1, 1)
	o.hold = make(chan struct{})
	begin, end := &want{0, 1000, true}, &want{0, shardBytes, true}
	for _, w := range []*want{begin, end} {
		a, s, waits := p.Ask(w, budget.Demand)
		require.Equal(t, Waits, a)
		require.Nil(t, s)
		require.NotNil(t, waits)
	}
	o.hold <- struct{}{}
	o.hold <- struct{}{}
	o.wait(func() bool { return len(o.there) == 1 })
	require.Same(t, begin, o.arrival(0).Load, "before the shard is whole")
	read(t, p, o.arrival(0).Place, begin)
	close(o.hold)
	o.wait(func() bool { return len(o.there) == 2 })
	read(t, p, o.arrival(1).Place, end)
	a, s, _ := p.Ask(end, budget.Prefetch)
	require.Equal(t, There, a)
	read(t, p, s, end)
	require.Equal(t, 1, o.decoded)
}

func TestSpaceIsTakenFromLeastWantedShard(t *testing.T) {
	o, p := newOwner(t, 4, 2)
	ask := func(shard int, u budget.Urgency) Asked {
		w := &want{shard, 10, true}
		n := o.arrived()
		a, s, _ := p.Ask(w, u)
		if a == Waits {
			o.wait(func() bool { return len(o.there) > n })
			s = o.arrival(n).Place
		}
		if a != Refused {
			read(t, p, s, w)
			require.Eventually(t, func() bool { _, whole := p.Find(shard); return whole }, time.Minute, time.Millisecond)
		}
		return a
	}
	o.soon[0], o.soon[1] = true, true
	require.Equal(t, Waits, ask(0, budget.Demand))
	require.Equal(t, Waits, ask(1, budget.Demand))
	require.Equal(t, Refused, ask(2, budget.Prefetch), "both are wanted soon")
	s, _ := p.Find(1)
	s.GoneOut(0)
	require.Zero(t, s.Left())
	require.Equal(t, Waits, ask(2, budget.Demand))
	s, _ = p.Find(1)
	require.Nil(t, s, "all of it had gone out")
	require.Equal(t, Waits, ask(3, budget.Demand))
	_, two := p.Find(2)
	_, zero := p.Find(0)
	require.NotEqual(t, two, zero)
	require.Equal(t, o.budget.Charged(), p.Stats().TableBytes)
	require.Equal(t, 2*diskcache.RoomBytes(shardBytes), p.Stats().UsedBytes)
}

func TestLoadHandedOverBySpoolIsNotCancellable(t *testing.T) {
	o, p := newOwner(t, 3, 1)
	o.hold = make(chan struct{})
	w, other := &want{0, 10, true}, &want{1, 10, true}
	p.Ask(w, budget.Demand)
	a, _, _ := p.Ask(other, budget.Demand)
	require.Equal(t, Waits, a, "there is no room")
	require.True(t, p.TakeBack(other))
	require.False(t, p.TakeBack(other))
	close(o.hold)
	o.wait(func() bool { return len(o.there) == 1 })
	require.False(t, p.TakeBack(w))
	require.Same(t, w, o.arrival(0).Load)
	require.Empty(t, p.Leave(o.arrival(0).Place).There)
}

func TestUndecodableShardFailsItsLoadsAndIsEvicted(t *testing.T) {
	o, p := newOwner(t, 1, 1)
	o.fails = errors.New("no such thing")
	w := &want{0, 10, true}
	p.Ask(w, budget.Demand)
	o.wait(func() bool { return len(o.failed) == 1 })
	require.Equal(t, o.fails, o.failed[w])
	require.Eventually(t, func() bool { return p.Stats().UsedBytes == 0 }, time.Minute, time.Millisecond)
	require.Zero(t, p.Stats().TableBytes)
	require.Zero(t, o.budget.Charged())
}

// A shard that was damaged leaves, gives back its room and its tables once nobody reads
// it, and is asked for again; the second time it is done without.
func TestDamagedShardIsEvictedAndBypassedAfterSecondTime(t *testing.T) {
	o, p := newOwner(t, 2, 1)
	var said bytes.Buffer
	p.o.Log = slog.New(slog.NewTextHandler(&said, nil))
	w, waits := &want{0, 10, true}, &want{1, 10, true}
	for try := range Tries {
		require.False(t, p.Avoids(0), "try %d", try)
		n := o.arrived()
		p.Ask(w, budget.Demand)
		o.wait(func() bool { return len(o.there) > n })
		s := o.arrival(n).Place
		require.Eventually(t, func() bool { _, whole := p.Find(0); return whole }, time.Minute, time.Millisecond)
		require.Empty(t, p.Lost(s, errors.New("zeros")))
		require.Positive(t, p.Stats().UsedBytes, "it is being read")
		p.Leave(s)
		require.Zero(t, p.Stats().UsedBytes)
		require.Zero(t, o.budget.Charged())
	}
	require.True(t, p.Avoids(0))
	require.EqualValues(t, Tries, p.Stats().DamagedShards)
	p.Wait()
	require.Equal(t, 1, bytes.Count(said.Bytes(), []byte("level=WARN")))
	require.Contains(t, said.String(), "shard 0")

	// One that waited for room meanwhile is told to do without, too.
	o.hold = make(chan struct{})
	p.Ask(waits, budget.Demand)
	p.Ask(w, budget.Demand)
	close(o.hold)
	o.wait(func() bool { return len(o.without) == 1 })
	require.Same(t, w, o.without[0])
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

// Who is told that a shard was lost may wait for the owner's lock, which the owner may
// hold when it says so.
func TestLossCallbackDoesNotBlock(t *testing.T) {
	o, p := newOwner(t, 1, 1)
	var lock sync.Mutex
	told := make(chan Stats, 1)
	p.o.Log = slog.New(toldHandler{do: func() {
		lock.Lock()
		defer lock.Unlock()
		told <- p.Stats()
	}})
	w := &want{0, 10, true}
	p.Ask(w, budget.Demand)
	o.wait(func() bool { return len(o.there) == 1 })
	lock.Lock()
	p.Lost(o.arrival(0).Place, errors.New("zeros"))
	lock.Unlock()
	require.EqualValues(t, 1, (<-told).DamagedShards)
	p.Leave(o.arrival(0).Place)
}
