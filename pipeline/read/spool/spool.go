package spool

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// Load is a piece that somebody wants from the spool. It is constant, but for Waited.
type Load interface {
	// Shard is in which it lies, of those that are spooled.
	Shard() int
	// Bounds is where it begins and ends in the decoded shard.
	Bounds() (start, end, reach int64)
	// Waited says whether a reader waits for it now. It takes no lock.
	Waited() bool
}

// News is what has become of loads that were asked for, to be carried out by the owner.
type News struct {
	There   []Arrival // can be read now
	Without []Load    // are to be brought without the spool: see Losses.Avoids
	Failed  []Load    // can't be brought, for Err
	Err     error
	Shard   int // that Err is about
}

// Arrival is a load whose bytes can be read from the place of its shard, which the
// spool keeps until Read or Leave.
type Arrival struct {
	Load  Load
	Place *Place
}

// Any says that there is something to carry out.
func (n *News) Any() bool { return len(n.There)+len(n.Without)+len(n.Failed) > 0 }

// Owner is whom a spool works for.
type Owner interface {
	// News is called without the spool's lock, from a goroutine of the spool.
	News(News)
	// WantedSoon says whether a reader will come to the shard soon, or, with missing,
	// to a piece of it that is not in memory. It is called with the spool's lock held,
	// and takes none.
	WantedSoon(shard int, missing bool) bool
}

// Decoder gives a decoded shard from front to back.
type Decoder interface {
	Pos() int64
	Fill(p []byte) error
	// EndMember looks at the last checksum.
	EndMember() error
}

// Decoders are where a spool has its decoders from. A core is held while one decodes.
type Decoders interface {
	// Whole gives a decoder of a shard, that fills buffers of so many bytes. clock is
	// when it last got on, waits are its waits for storage.
	Whole(shard int, bufferBytes int64, clock *atomic.Int64, waits *meter.WaitClock) Decoder
	End(Decoder)
	TakeCore()
	GiveCore()
}

// Shards describes the shards that can be spooled. It is safe for concurrent use.
type Shards interface {
	// Shards returns how many there are.
	Shards() int
	// DecodedBytes returns the size of a decoded shard.
	DecodedBytes(shard int) int64
	// Records returns the number of a shard's records, and of those that may be asked for.
	Records(shard int) (all, wanted uint64)
	// Path names a shard for people.
	Path(shard int) string
}

// Config of a Spool.
type Config struct {
	Shards   Shards
	Decoders Decoders
	Meter    *meter.Meter
	Now      func() int64 // nanoseconds, above 0
	Log      *slog.Logger
	Most     int // shards that are decoded at a time
	// Charge is told by how many bytes more, or less, its tables take. It is called
	// with the spool's lock held.
	Charge func(bytes int64)
}

// Spool keeps compressed shards decoded, in a file: each is decoded once, from
// front to back, and its pieces are then read from there. It is safe for concurrent
// use.
type Spool struct {
	c     Config
	owner Owner
	shelf *diskcache.Shelf
	// clocks, of each shard: Config.Now when it, or what it waits for, last got on.
	clocks []atomic.Int64
	// goroutines are shards that are decoded, reads, and warnings.
	goroutines sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	places  map[int]*Place
	order   []*Place // of places, the oldest first
	waiting []Load   // for whose shards there is no room
	queue   []*Place // that have room, and are not yet decoded
	running int      // shards that are decoded now
	ever    []uint64 // a bit a shard: it was decoded to its end
	refused int64    // when there was no room
	leaving int64    // bytes of shards that were dropped and are read or written still
	decoded uint64   // shards that were decoded to their end
	found   uint64   // shards that were on the shelf already, or that another process has decoded
	again   uint64   // of these, those that had been before
	tables  int64    // bytes of memory, of shards in the spool
	losses  Losses
}

// Place is a shard in the spool, or on its way there. What is not atomic is guarded
// by Spool.mu.
type Place struct {
	shard   int
	decoded *diskcache.Decoded // nil once its room is free
	there   int64              // so many bytes can be read
	whole   bool
	writing bool            // its decoder is at work
	dropped bool            // it is in no list any more, and its room is free once nobody uses it
	damaged bool            // it did not come back as it was written
	keep    bool            // once it was dropped, it may stay on the shelf's disk
	reading int             // loads that are reading from it, or are about to
	work    []Load          // that wait for bytes to come
	ledger  meter.WaitClock // of its decoder's waits for storage

	// A bit a record, and how many of the part are not set: what has gone out
	// since the shard came, or since all of it had.
	gone []atomic.Uint64
	left atomic.Int64
}

// errDamaged ends the decoding of a shard that did not come back as it was
// written. Nobody gets to see it.
var errDamaged = errors.New("the shard is damaged in the spool")

// refusalNanos is for how long nobody looks for room again to read ahead: to
// look costs time, with a lock.
const refusalNanos = 1e6

// New makes a spool of shards on a shelf, which is the spool's from then on.
func New(c Config, shelf *diskcache.Shelf, owner Owner) *Spool {
	n := c.Shards.Shards()
	return &Spool{
		c: c, owner: owner, shelf: shelf, places: map[int]*Place{},
		clocks: make([]atomic.Int64, n), ever: make([]uint64, (n+63)/64),
	}
}

// Clock is when a shard, or what it waits for, last got on.
func (p *Spool) Clock(shard int) *atomic.Int64 { return &p.clocks[shard] }

// Avoids says whether a shard is read without the spool for a while: it was damaged there,
// or the file has been made shorter and its room is somebody else's.
func (p *Spool) Avoids(shard int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places[shard] == nil && p.short() {
		return true
	}
	return p.losses.Avoids(shard, p.c.Now())
}

// Asked is the answer to Ask.
type Asked int

const (
	Refused Asked = iota // there is no room to read ahead
	Waits                // it comes with News
	There                // it can be read at once
)

// Ask has a load read from the spool as soon as its bytes are there. The place is
// set where they are; waits are what the load waits for, where they are not. The
// owner may hold its lock: then it has noted all before News come.
func (p *Spool) Ask(l Load, u budget.Urgency) (a Asked, s *Place, waits *meter.WaitClock) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ask(l, u)
}

func (p *Spool) ask(l Load, u budget.Urgency) (Asked, *Place, *meter.WaitClock) {
	shard := l.Shard()
	s := p.places[shard]
	if s == nil {
		if s = p.admit(shard, u); s == nil {
			if u != budget.Demand {
				return Refused, nil, nil
			}
			p.clocks[shard].Store(p.c.Now())
			p.waiting = append(p.waiting, l)
			return Waits, nil, new(meter.WaitClock) // for others to be decoded and used
		}
	}
	if s.whole && s.left.Load() <= 0 {
		s.renew(p.wanted(shard)) // the next epoch has come to it
	}
	if _, end, _ := l.Bounds(); s.there < end {
		s.work = append(s.work, l)
		return Waits, nil, &s.ledger
	}
	s.reading++
	return There, s, nil
}

func (p *Spool) wanted(shard int) int64 {
	_, n := p.c.Shards.Records(shard)
	return int64(n)
}

// Change lets an owner change which records may be asked for, with swap, while nothing
// comes or goes. by says, of each shard that is in the spool or on its way, how many more
// of its records are left, of which gone has a bit set for those that have gone out: it
// may clear some. Neither may take a lock that is held while the spool is called.
func (p *Spool) Change(swap func(), by func(shard int, gone []atomic.Uint64) (more int64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.order {
		s.left.Add(by(s.shard, s.gone))
	}
	clear(p.ever) // what is decoded now is decoded for other records
	swap()
}

// GoneOut notes that the shard's record has gone out. It takes no lock.
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

// TakeBack says whether a load that waits could be taken back.
func (p *Spool) TakeBack(l Load) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := func(list *[]Load) bool {
		i := slices.Index(*list, l)
		if i >= 0 {
			*list = slices.Delete(*list, i, i+1)
		}
		return i >= 0
	}
	if s := p.places[l.Shard()]; s != nil && from(&s.work) {
		return true
	}
	return from(&p.waiting)
}

// Unqueue drops shards of which nothing is wanted, and that nobody has
// begun to decode.
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

// Stats is a snapshot. Bytes are of decoded shards, but for TableBytes.
type Stats struct {
	Dir                          string
	CapacityBytes, UsedBytes     int64
	Shards, Decoding             int
	Decoded, DecodedAgain, Found uint64
	DamagedPieces, DamagedShards uint64
	TableBytes                   int64 // of memory
}

// Stats gives a snapshot.
func (p *Spool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Dir: p.shelf.Dir(), CapacityBytes: p.shelf.CapacityBytes(), UsedBytes: p.shelf.UsedBytes(), Shards: len(p.places),
		Decoding: p.running, Decoded: p.decoded, DecodedAgain: p.again, Found: p.found,
		DamagedPieces: p.losses.Pieces, DamagedShards: p.losses.Shards, TableBytes: p.tables,
	}
}

// Stop has decoding end. No more is admitted.
func (p *Spool) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Wait waits for decoding and reads to end, once it was told to stop.
func (p *Spool) Wait() { p.goroutines.Wait() }

// Close frees the room and returns the loads that will not be brought, once nothing runs.
func (p *Spool) Close() ([]Load, error) {
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

// Find gives a shard's place, nil where it has none, and whether all of it is there.
func (p *Spool) Find(shard int) (s *Place, whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s = p.places[shard]; s == nil {
		return nil, false
	}
	return s, s.whole
}

// leaving returns what becomes of the shard when its place is given up.
func (s *Place) leaving() diskcache.Leaving {
	switch {
	case s.damaged:
		return diskcache.Spoilt
	case s.whole && (!s.dropped || s.keep):
		return diskcache.Keep
	}
	return diskcache.Remove
}

// Left is how many records of the place have not gone out, of those that may be asked
// for.
func (s *Place) Left() int64 { return s.left.Load() }

// Decoded is where the shard lies. The place must be in the spool.
func (s *Place) Decoded() *diskcache.Decoded { return s.decoded }

// ForgetLosses has shards that were damaged go into the spool again.
func (p *Spool) ForgetLosses() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses.Forget()
}
