package decode

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// spoolBoard is what an owner of a spool knows of its loads, under a lock of its own that it
// holds while it calls the spool, as a fetcher does.
type spoolBoard struct {
	*spoolOwner
	p    *Spool
	mu   sync.Mutex
	rng  *rand.Rand
	left map[*Load]bool // that are on their way
	done map[*Load]string
	// later are reads that have not begun: their places are kept.
	later  []func()
	wrong  []string // what must not happen
	change sync.Cond
}

func (b *spoolBoard) WantedSoon(shard int, _ bool) bool { return shard%3 == 0 }

func (b *spoolBoard) News(n News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.carryOut(n)
}

func (b *spoolBoard) carryOut(n News) {
	for _, l := range n.Without {
		b.end(l, "without")
	}
	for _, l := range n.There {
		b.come(l)
	}
}

func (b *spoolBoard) Failed(_ int, loads []*Load, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range loads {
		b.end(l, "failed: "+err.Error())
	}
}

// come is where a load's bytes can be read. Some are left, some are read at once, some
// later, and some of these are found damaged.
func (b *spoolBoard) come(w *Load) {
	if b.rng.IntN(6) == 0 {
		b.end(w, "no memory")
		b.carryOut(b.p.Leave(w))
		return
	}
	if b.rng.IntN(2) == 0 {
		b.later = append(b.later, func() { b.read(w) })
		b.change.Broadcast()
		return
	}
	b.read(w)
}

// wait waits for news, or for those who read later.
func (b *spoolBoard) wait() {
	if n := len(b.later); n > 0 {
		read := b.later[n-1]
		b.later = b.later[:n-1]
		read()
		return
	}
	b.change.Wait()
}

func (b *spoolBoard) read(w *Load) {
	b.p.Read(w, nil, func(err error) {
		for i, x := range w.Memory {
			if err == nil && x != byteOf(w.Shard, int64(i)) {
				err = errors.New("another byte")
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err != nil {
			b.wrong = append(b.wrong, err.Error())
		} else if b.rng.IntN(8) == 0 {
			for _, l := range b.p.Lost(w, errors.New("zeros")) {
				b.again(l)
			}
			b.again(w)
			b.carryOut(b.p.Admit())
			return
		}
		b.end(w, "read")
	})
}

// again asks for a load once more that a loss has set back.
func (b *spoolBoard) again(w *Load) {
	if b.p.Avoids(w.Shard) {
		b.end(w, "without")
		return
	}
	b.ask(w, budget.Demand)
}

func (b *spoolBoard) ask(w *Load, u budget.Urgency) {
	switch b.p.Ask(w, u) {
	case Refused:
		if u == budget.Demand {
			b.wrong = append(b.wrong, "a load that is waited for was refused")
		}
		b.end(w, "refused")
	case There:
		b.come(w)
	}
}

func (b *spoolBoard) end(w *Load, how string) {
	if !b.left[w] {
		b.wrong = append(b.wrong, b.done[w]+", then "+how)
	}
	delete(b.left, w)
	b.done[w] = how
	b.change.Broadcast()
}

// Loads come, are taken back, find no memory and are lost in whatever order, of shards
// that take each other's room: each ends exactly once, with the right bytes, and nobody
// waits for ever. At the end nothing is charged but what is in the spool.
func TestEverySpooledLoadEndsExactlyOnceUnderAnySchedule(t *testing.T) {
	for seed := range uint64(3) {
		room := 1 + int(seed)%3
		o, p := newSpool(t, 6, room)
		b := &spoolBoard{spoolOwner: o, p: p, rng: rand.New(rand.NewPCG(seed, 3)), left: map[*Load]bool{}, done: map[*Load]string{}}
		b.change.L = &b.mu
		p.owner = b
		var users sync.WaitGroup
		for user := range uint64(3) {
			users.Go(func() { b.play(rand.New(rand.NewPCG(seed, user)), 40) })
		}
		users.Wait()
		b.mu.Lock()
		for len(b.left) > 0 {
			b.wait()
		}
		require.Empty(t, b.wrong)
		b.mu.Unlock()
		p.Stop()
		p.Wait()
		p.mu.Lock()
		for _, s := range p.places {
			require.Zero(t, s.reading)
		}
		require.Zero(t, p.leaving, "all that was dropped is free")
		p.mu.Unlock()
		s := p.Stats()
		require.Equal(t, int64(s.Shards)*diskcache.RoomBytes(shardBytes), s.UsedBytes)
		require.Equal(t, o.budget.Charged(), s.TableBytes)
	}
}

// play asks for so many loads, takes some back and waits for some.
func (b *spoolBoard) play(rng *rand.Rand, asks int) {
	for range asks {
		if rng.IntN(8) == 0 {
			b.p.ForgetLosses() // as after ten minutes
		}
		w := want(rng.IntN(6), []int64{10, bufferBytes, shardBytes}[rng.IntN(3)], rng.IntN(2) == 0)
		u := budget.Urgency(1 + rng.IntN(2))
		b.mu.Lock()
		b.left[w] = true
		b.ask(w, u)
		switch rng.IntN(3) {
		case 0:
			if b.left[w] && b.p.TakeBack(w) {
				b.end(w, "taken back")
			}
			b.carryOut(b.p.Unqueue())
		case 1:
			for b.left[w] {
				b.wait()
			}
		}
		b.mu.Unlock()
	}
}

// A shard that is lost while it is decoded may still be written to: its room is nobody
// else's until that has ended.
func TestSpaceOfShardIsNotReusedDuringWrite(t *testing.T) {
	o, p := newSpool(t, 1, 1)
	o.hold = make(chan struct{})
	p.Ask(want(0, 10, true), budget.Demand)
	o.hold <- struct{}{}
	o.hold <- struct{}{}
	o.wait(func() bool { return len(o.there) == 1 })
	s := o.arrival(0).Place
	require.Empty(t, p.Lost(o.arrival(0), errors.New("zeros")))
	p.leave(s)
	used := p.Stats().UsedBytes
	close(o.hold)
	require.Equal(t, diskcache.RoomBytes(shardBytes), used, "its decoder is at work")
	require.Eventually(t, func() bool { return p.Stats().UsedBytes == 0 }, time.Minute, time.Millisecond)
}
