package decode

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
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

// spoolOwner has shards whose bytes follow from their number, and writes down the news.
type spoolOwner struct {
	hold chan struct{} // decoders wait for it, when set

	mu      sync.Mutex
	there   []*Load
	failed  map[*Load]error
	without []*Load
	change  sync.Cond
	soon    map[int]bool
	fails   error // of decoders
	decoded int
	budget  budget.Budget
}

func (o *spoolOwner) WantedSoon(shard int, _ bool) bool { return o.soon[shard] }

func (o *spoolOwner) News(n News) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.there = append(o.there, n.There...)
	o.without = append(o.without, n.Without...)
	o.change.Broadcast()
}

func (o *spoolOwner) Failed(_ int, loads []*Load, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range loads {
		o.failed[l] = err
	}
	o.change.Broadcast()
}

func (o *spoolOwner) Room(*Load) bool   { panic("of a decoder") }
func (o *spoolOwner) Passing(int) *Load { panic("of a decoder") }
func (o *spoolOwner) Next(int, int) int { panic("of a decoder") }
func (o *spoolOwner) Came(*Load)        { panic("of a decoder") }
func (o *spoolOwner) Shrink()           {}

// wait waits until something holds.
func (o *spoolOwner) wait(holds func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !holds() {
		o.change.Wait()
	}
}

// arrived is how many loads have come.
func (o *spoolOwner) arrived() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.there)
}

func (o *spoolOwner) arrival(n int) *Load {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.there[n]
}

func byteOf(shard int, off int64) byte { return byte(off*7+off/255) ^ byte(shard) }

// through makes a shard's bytes.
func (o *spoolOwner) through(shard int, _ *atomic.Int64, _ *meter.WaitClock, write func([]byte) error) error {
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

// want returns a load of a shard's first bytes.
func want(shard int, end int64, waited bool) *Load {
	l := loadOf(shard, shard, 0, end)
	if waited {
		l.Waiters.Store(1)
	}
	return l
}

func newSpool(t *testing.T, shards, room int) (*spoolOwner, *Spool) {
	return newSpoolOn(t, shards, func(engine uring.Engine) *diskcache.Shelf {
		shelf, err := diskcache.NewSpool(readtest.DiskDir(t), int64(room)*diskcache.RoomBytes(shardBytes), 1<<20, engine, nil)
		require.NoError(t, err)
		return shelf
	})
}

// newKeptSpool returns a spool of shards that are kept in a disk cache.
func newKeptSpool(t *testing.T, shards int) (*spoolOwner, *Spool) {
	return newSpoolOn(t, shards, func(engine uring.Engine) *diskcache.Shelf {
		c := diskcache.DefaultConfig()
		c.Dir, c.Below, c.Engine, c.BoundBytes, c.Log = readtest.DiskDir(t), noObjects{}, engine, 1<<30, slog.New(slog.DiscardHandler)
		c.Identify = func(storage.Object) (diskcache.Identity, bool) { return diskcache.Identity{}, false }
		cache, err := diskcache.Open(c)
		require.NoError(t, err)
		all := diskcache.ShelfConfig{
			NeedBytes: shardBytes, AllBytes: int64(shards) * shardBytes, MostTableBytes: 1 << 20,
			DecodedBytes: func(int) int64 { return shardBytes },
			Identify: func(shard int) (diskcache.Identity, bool) {
				return diskcache.Identity{URL: fmt.Sprint("file:///", shard), Validator: "1"}, true
			},
		}
		for i := range shards {
			all.Shards = append(all.Shards, i)
		}
		shelf, err := cache.NewShelf(all)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cache.Close()) })
		return shelf
	})
}

// noObjects is a storage without objects.
type noObjects struct{ storage.Storage }

func (noObjects) Caps() storage.Caps { return storage.Caps{} }
func (noObjects) Close() error       { return nil }

func newSpoolOn(t *testing.T, shards int, on func(uring.Engine) *diskcache.Shelf) (*spoolOwner, *Spool) {
	o := &spoolOwner{failed: map[*Load]error{}, soon: map[int]bool{}}
	o.change.L = &o.mu
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	shelf := on(engine)
	began := time.Now()
	x := new(readtest.Index)
	for i := range shards {
		x.ShardTable = append(x.ShardTable, catalog.Shard{Object: storage.Object{Path: fmt.Sprint("shard ", i)}, First: uint64(i), Records: 1, DecodedBytes: shardBytes})
	}
	c := &options.Options{Decoders: 2}
	c.SetDefaults()
	c.Survey = &choose.Survey{Limits: choose.Limits{DecoderBytes: 1 << 30}}
	p := NewSpool(c, &chunkmap.Map{Index: x, Part: chunkmap.All{}}, o.through, &o.budget, func() int64 { return int64(time.Since(began)) + 1 }, shelf, o)
	t.Cleanup(func() {
		p.Stop()
		p.Wait()
		_, err := p.Close()
		require.NoError(t, err)
	})
	return o, p
}

// read reads a load from its place, and compares.
func read(t *testing.T, p *Spool, w *Load) {
	t.Helper()
	done := make(chan error)
	p.Read(w, nil, func(err error) { done <- err })
	require.NoError(t, <-done)
	for i, b := range w.Memory {
		if b != byteOf(w.Shard, int64(i)) {
			require.Equal(t, byteOf(w.Shard, int64(i)), b, "byte %d", i)
		}
	}
}

func TestLoadEndsWhenItsBytesAreSpooled(t *testing.T) {
	o, p := newSpool(t, 1, 1)
	o.hold = make(chan struct{})
	begin, end := want(0, 1000, true), want(0, shardBytes, true)
	for _, w := range []*Load{begin, end} {
		require.Equal(t, Waits, p.Ask(w, budget.Demand))
		require.Nil(t, w.Place)
		require.NotNil(t, w.Waits())
	}
	o.hold <- struct{}{}
	o.hold <- struct{}{}
	o.wait(func() bool { return len(o.there) == 1 })
	require.Same(t, begin, o.arrival(0), "before the shard is whole")
	read(t, p, begin)
	close(o.hold)
	o.wait(func() bool { return len(o.there) == 2 })
	read(t, p, o.arrival(1))
	again := want(0, shardBytes, true)
	require.Equal(t, There, p.Ask(again, budget.Prefetch))
	read(t, p, again)
	require.Equal(t, 1, o.decoded)
}

// A load far from the decoder of a shard that is spooled only to be kept does not wait for it if
// another decoder can start near the load. The shard is decoded in any case.
func TestLoadFarFromTheDecoderOfAShardToBeKeptIsDecodedAside(t *testing.T) {
	const mib = 1 << 20
	o, p := newSpool(t, 1, 200)
	o.hold = make(chan struct{})
	defer close(o.hold)
	x := p.shards.Index.(*readtest.Index)
	x.ShardTable[0].DecodedBytes = 80 * mib
	x.EntryTable = [][]format.Entry{{{}, {DecodedBytes: 40 * mib}, {DecodedBytes: 78 * mib}}}
	p.o.Index, p.o.Choice.Kept = x, true
	ask := func(off int64) Asked { return p.Ask(loadOf(0, 0, off, 10), budget.Demand) }
	require.Equal(t, Aside, ask(79*mib))
	require.Equal(t, 1, p.Stats().Decoding)
	require.Equal(t, Waits, ask(41*mib), "it is not far")
	require.Equal(t, Waits, ask(65*mib), "the entry before it is 25 MiB away")
	p.o.Choice.Kept = false
	require.Equal(t, Waits, ask(79*mib), "no other decoder is wanted")
}

func TestSpaceIsTakenFromLeastWantedShard(t *testing.T) {
	o, p := newSpool(t, 4, 2)
	ask := func(shard int, u budget.Urgency) Asked {
		w := want(shard, 10, true)
		n := o.arrived()
		a := p.Ask(w, u)
		if a == Waits {
			o.wait(func() bool { return len(o.there) > n })
			require.Same(t, w, o.arrival(n))
		}
		if a != Refused {
			read(t, p, w)
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
	o, p := newSpool(t, 3, 1)
	o.hold = make(chan struct{})
	w, other := want(0, 10, true), want(1, 10, true)
	p.Ask(w, budget.Demand)
	require.Equal(t, Waits, p.Ask(other, budget.Demand), "there is no room")
	require.True(t, p.TakeBack(other))
	require.False(t, p.TakeBack(other))
	close(o.hold)
	o.wait(func() bool { return len(o.there) == 1 })
	require.False(t, p.TakeBack(w))
	require.Same(t, w, o.arrival(0))
	require.Empty(t, p.Leave(w).There)
}

func TestUndecodableShardFailsItsLoadsAndIsEvicted(t *testing.T) {
	o, p := newSpool(t, 1, 1)
	o.fails = errors.New("no such thing")
	w := want(0, 10, true)
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
	o, p := newSpool(t, 2, 1)
	var said bytes.Buffer
	p.o.Log = slog.New(slog.NewTextHandler(&said, nil))
	w, waits := want(0, 10, true), want(1, 10, true)
	for try := range Tries {
		require.False(t, p.Avoids(0), "try %d", try)
		n := o.arrived()
		p.Ask(w, budget.Demand)
		o.wait(func() bool { return len(o.there) > n })
		s := o.arrival(n).Place
		require.Eventually(t, func() bool { _, whole := p.Find(0); return whole }, time.Minute, time.Millisecond)
		require.Empty(t, p.Lost(w, errors.New("zeros")))
		require.Positive(t, p.Stats().UsedBytes, "it is being read")
		p.leave(s)
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

// A shard that is damaged in a disk cache is not opened there again while it is still read: it would
// be found whole, and what removes the damaged data when that read has ended would remove what was
// decoded meanwhile.
func TestDamagedShardIsDecodedAgainOnceItIsNotReadAnyMore(t *testing.T) {
	o, p := newKeptSpool(t, 3)
	w, other := want(0, shardBytes, true), want(0, 10, true)
	require.Equal(t, Waits, p.Ask(w, budget.Demand))
	o.wait(func() bool { return len(o.there) == 1 })
	require.Equal(t, There, p.Ask(other, budget.Demand))
	w.Place.Decoded().EachPlace(5000, 1, func(fd int, at, _ int64) {
		_, err := unix.Pwrite(fd, []byte{^byteOf(0, 5000)}, at)
		require.NoError(t, err)
	})
	done := make(chan error)
	p.Read(w, nil, func(err error) { done <- err })
	err := <-done
	require.Error(t, err)
	require.Empty(t, p.Lost(w, err))
	require.Equal(t, Waits, p.Ask(w, budget.Demand))
	require.Empty(t, p.Admit())
	require.Zero(t, p.Stats().Shards, "the shard is still read")
	require.Equal(t, Refused, p.Ask(want(0, 10, false), budget.Prefetch))

	require.Empty(t, p.Leave(other))
	o.wait(func() bool { return len(o.there) == 2 })
	read(t, p, o.arrival(1))
	st := p.Stats()
	require.EqualValues(t, 2, st.Decoded)
	require.Zero(t, st.Found)
	require.EqualValues(t, 1, st.DamagedShards)
	require.False(t, p.Avoids(0))
}

// Who is told that a shard was lost may wait for the owner's lock, which the owner may
// hold when it says so.
func TestLossCallbackDoesNotBlock(t *testing.T) {
	o, p := newSpool(t, 1, 1)
	var lock sync.Mutex
	told := make(chan SpoolStats, 1)
	p.o.Log = slog.New(toldHandler{do: func() {
		lock.Lock()
		defer lock.Unlock()
		told <- p.Stats()
	}})
	w := want(0, 10, true)
	p.Ask(w, budget.Demand)
	o.wait(func() bool { return len(o.there) == 1 })
	lock.Lock()
	s := o.arrival(0).Place
	p.Lost(w, errors.New("zeros"))
	lock.Unlock()
	require.EqualValues(t, 1, (<-told).DamagedShards)
	p.leave(s)
}

func TestShardDamagedTwiceIsAvoidedForTenMinutes(t *testing.T) {
	var l losses
	const minute = int64(time.Minute)
	require.False(t, l.avoids(3, minute))
	require.True(t, l.add(3, minute), "the first one is told of")
	require.False(t, l.avoids(3, minute))
	require.False(t, l.add(3, minute+1), "not twice in a minute")
	require.True(t, l.avoids(3, minute+1))
	require.False(t, l.avoids(4, minute+1), "another shard")
	require.True(t, l.avoids(3, 11*minute))
	require.False(t, l.avoids(3, 11*minute+1))
	require.True(t, l.add(3, 12*minute), "told of again")
	require.False(t, l.avoids(3, 12*minute), "what was is forgotten")
	require.Equal(t, uint64(3), l.shards)
	l.add(3, 12*minute)
	require.True(t, l.avoids(3, 12*minute))
	clear(l.of)
	require.False(t, l.avoids(3, 12*minute))
}
