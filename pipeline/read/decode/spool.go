package decode

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
)

// News is which loads that wait for the spool can continue. The owner has to act on it.
type News struct {
	There   []*Load // can be read from their Place now, which is kept until Read or Leave is called
	Without []*Load // to be decoded without the spool: see losses.avoids, and Aside
}

// Any reports whether there is any news.
func (n *News) Any() bool { return len(n.There)+len(n.Without) > 0 }

// Through decodes a shard from front to back, as decode.Set.Through does.
type Through func(shard int, clock *atomic.Int64, waits *meter.WaitClock, write func([]byte) error) error

// Spool keeps decoded shards on a disk: each is decoded once, from front to back, and its pieces
// are then read from there. It is safe for concurrent use.
type Spool struct {
	o      *options.Options
	shards *chunkmap.Map // of the records that may be asked for
	decode Through
	budget *budget.Budget // to which the tables are charged
	now    func() int64
	owner  Owner
	shelf  *diskcache.Shelf
	most   int // number of shards that are decoded at a time
	// clocks has for each shard when it, or what it waits for, last made progress (now).
	clocks []atomic.Int64
	// goroutines counts decoding, reads and warnings in progress.
	goroutines sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	places  map[int]*Place
	order   []*Place    // all places, oldest first
	waiting []*Load     // loads of shards for which there is no room
	queue   []*Place    // places that have room and are not being decoded yet
	running int         // number of shards that are being decoded
	ever    []uint64    // one bit per shard: it was decoded to its end
	refused int64       // when there was no room last (now)
	leaving int64       // bytes of dropped shards that are still being read or written
	old     map[int]int // by shard: how many of those bytes' places it has; not 0
	decoded uint64      // shards that were decoded to their end
	found   uint64      // shards that were on the shelf already, or that another process has decoded
	again   uint64      // those of decoded that had been decoded before
	tables  int64       // bytes of memory of the places' tables
	losses  losses
}

// Place is a shard in the spool, or being decoded into it. Fields that are not atomic are guarded by
// Spool.mu.
type Place struct {
	shard   int
	decoded *diskcache.Decoded // nil once its room is free
	there   int64              // how many of the first bytes can be read
	whole   bool
	writing bool            // it is being decoded
	dropped bool            // it is in no list any more; its room becomes free when it is not in use
	damaged bool            // it was read back differently from what was written
	keep    bool            // it may stay on the shelf's disk after it was dropped
	reading int             // number of loads that read from it, or are about to
	work    []*Load         // loads that wait for their bytes
	ledger  meter.WaitClock // the decoder's waits for storage

	// gone has one bit per record, set once it was delivered; left is how many records of the part
	// have not been. Both start anew when all have been delivered and the shard is needed again.
	gone []atomic.Uint64
	left atomic.Int64
}

// errDamaged ends the decoding of a shard that was dropped because it was damaged. It is not
// returned to callers.
var errDamaged = errors.New("the shard is damaged in the spool")

// refusalNanos is how long after a refusal no load that is read ahead looks for room again, because
// looking takes time with a lock held.
const refusalNanos = 1e6

// NewSpool returns a spool on a shelf, which it takes ownership of. Memory of its tables is charged to b,
// with the spool's lock held. now returns nanoseconds above 0.
func NewSpool(o *options.Options, shards *chunkmap.Map, decode Through, b *budget.Budget, now func() int64, shelf *diskcache.Shelf, owner Owner) *Spool {
	n := shards.Shards()
	return &Spool{
		o: o, shards: shards, decode: decode, budget: b, now: now, owner: owner, shelf: shelf,
		most:   int(min(max(o.Survey.Limits.DecoderBytes/choose.DecoderBytes, 1), int64(o.Decoders))),
		places: map[int]*Place{}, old: map[int]int{}, clocks: make([]atomic.Int64, n), ever: make([]uint64, (n+63)/64),
	}
}

// Avoids reports whether a shard is currently read without the spool: because it was damaged there,
// or because the file was made shorter and its room is used by others.
func (p *Spool) Avoids(shard int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places[shard] == nil && p.short() {
		return true
	}
	return p.losses.avoids(shard, p.now())
}

// Asked is the answer to Ask.
type Asked int

const (
	Refused Asked = iota // there is no room to read ahead
	Waits                // News will have it
	There                // it can be read now
	Aside                // it is to be decoded without the spool, whose decoder is far from it
)

// Ask requests that a load is read from the spool. If its bytes are there, it returns There, and the
// load's Place is where to read them. If not, it returns Waits, and News will have the load later. An
// owner that holds its lock gets that News after it has released the lock.
func (p *Spool) Ask(l *Load, u budget.Urgency) Asked {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ask(l, u)
}

func (p *Spool) ask(l *Load, u budget.Urgency) Asked {
	shard := l.Shard
	l.clock.Store(&p.clocks[shard])
	s := p.places[shard]
	if s == nil {
		if s = p.admit(shard, u); s == nil {
			if u != budget.Demand {
				return Refused
			}
			p.clocks[shard].Store(p.now())
			p.waiting = append(p.waiting, l)
			l.waits.Store(new(meter.WaitClock)) // it waits for other shards to be used up
			return Waits
		}
	}
	if s.whole && s.left.Load() <= 0 {
		s.renew(p.wanted(shard)) // a reader of the next epoch needs it
	}
	if s.there < l.Layout.End() {
		if p.isFar(s, l) {
			return Aside
		}
		s.work = append(s.work, l)
		l.waits.Store(&s.ledger)
		return Waits
	}
	s.lend(l)
	return There
}

const (
	// farBytes is how far the decoder of a shard that is spooled only to be kept must be from a load
	// at least for another decoder to be opened for it, and farTimes how many times as far as that
	// one's entry.
	farBytes = 64 << 20
	farTimes = 4
)

// isFar reports whether a load is better decoded without the spool, from an entry near to it. Then
// readers that begin in the middle of shards need not wait until these are decoded up to there, as
// they need not without a cache. What is decoded for them is decoded twice. A dry run does not count
// that, because it depends on how fast readers and decoders are. It is called with mu held.
func (p *Spool) isFar(s *Place, l *Load) bool {
	start := l.Layout.Start()
	left := start - s.there
	if !p.o.Choice.Kept || p.o.Dry != nil || left < farBytes {
		return false
	}
	return left > farTimes*(start-p.o.Index.Entry(s.shard, start).DecodedBytes)
}

// lend makes s the place that a load is read from.
func (s *Place) lend(l *Load) {
	l.Place = s
	s.reading++
}

func (p *Spool) wanted(shard int) int64 {
	_, n := p.shards.Records(shard)
	return int64(n)
}

// Change calls swap, by which the owner changes which records may be asked for, while the spool's
// contents don't change. For each shard in the spool or being decoded into it, by returns how many
// more of its records are left; gone has a bit set for each delivered record, and by may clear some.
// Neither function may take a lock that is held while the spool is called.
func (p *Spool) Change(swap func(), by func(shard int, gone []atomic.Uint64) (more int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.order {
		s.left.Add(by(s.shard, s.gone))
	}
	clear(p.ever) // shards that are decoded from now on are decoded for other records
	swap()
}

// GoneOut records that the shard's record was delivered. It takes no lock.
func (s *Place) GoneOut(ordinal uint64) {
	w, bit := &s.gone[ordinal/64], uint64(1)<<(ordinal%64)
	if w.Load()&bit == 0 && w.Or(bit)&bit == 0 {
		s.left.Add(-1)
	}
}

// renew makes all records wanted again.
func (s *Place) renew(records int64) {
	for i := range s.gone {
		s.gone[i].Store(0)
	}
	s.left.Store(records)
}

// TakeBack removes a waiting load, and reports whether it could.
func (p *Spool) TakeBack(l *Load) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := func(list *[]*Load) bool {
		i := slices.Index(*list, l)
		if i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
		return i >= 0
	}
	if s := p.places[l.Shard]; s != nil && from(&s.work) {
		return true
	}
	return from(&p.waiting)
}

// Unqueue drops shards without loads whose decoding has not begun.
func (p *Spool) Unqueue() (n News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	dropped := false
	p.queue = slices.DeleteFunc(p.queue, func(s *Place) bool {
		if len(s.work) > 0 {
			return false
		}
		p.drop(s)
		dropped = true
		return true
	})
	if dropped {
		p.admitWaiting(&n)
	}
	return n
}

// SpoolStats is a snapshot. Bytes are of decoded shards, except TableBytes, which are of memory.
type SpoolStats struct {
	Dir                          string
	CapacityBytes, UsedBytes     int64
	Shards, Decoding             int
	Decoded, DecodedAgain, Found uint64
	DamagedPieces, DamagedShards uint64
	TableBytes                   int64
}

// Stats returns a snapshot.
func (p *Spool) Stats() SpoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return SpoolStats{
		Dir: p.shelf.Dir(), CapacityBytes: p.shelf.CapacityBytes(), UsedBytes: p.shelf.UsedBytes(), Shards: len(p.places),
		Decoding: p.running, Decoded: p.decoded, DecodedAgain: p.again, Found: p.found,
		DamagedPieces: p.losses.pieces, DamagedShards: p.losses.shards, TableBytes: p.tables,
	}
}

// Stop makes decoding end and admits no more shards.
func (p *Spool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Wait waits for decoding and reads to end, after Stop.
func (p *Spool) Wait() { p.goroutines.Wait() }

// Close frees the room, and returns the loads that were not completed. It must be called after Wait.
func (p *Spool) Close() ([]*Load, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.waiting
	for _, s := range p.order {
		left = append(left, s.work...)
		s.decoded.Leave(s.leaving())
		s.decoded = nil
	}
	p.waiting, p.queue, p.order, p.places = nil, nil, nil, map[int]*Place{}
	return left, p.shelf.Close()
}

// Find returns a shard's place, nil if it has none, and whether the shard is whole there.
func (p *Spool) Find(shard int) (s *Place, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.places[shard]; s == nil {
		return nil, false
	}
	return s, s.whole
}

// leaving returns what becomes of the shard's data when its place is released.
func (s *Place) leaving() diskcache.Leaving {
	switch {
	case s.damaged:
		return diskcache.Spoilt
	case s.whole && (!s.dropped || s.keep):
		return diskcache.Keep
	}
	return diskcache.Remove
}

// Left returns how many records of the part have not been delivered.
func (s *Place) Left() int64 { return s.left.Load() }

// Decoded returns where the shard is on the shelf. The place must be in the spool.
func (s *Place) Decoded() *diskcache.Decoded { return s.decoded }

// ForgetLosses forgets which shards were damaged, so that they are spooled again.
func (p *Spool) ForgetLosses() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.losses.of)
}
