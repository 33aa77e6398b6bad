package read

import (
	"context"
	"errors"
	"log/slog"
	"math/bits"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Forecast is what reading the next records takes if nothing is in memory or in the page cache, and
// there is no other reader.
type Forecast struct {
	// CountedRecords is the number of records that were simulated if the counts are extrapolated
	// from these; else 0.
	CountedRecords uint64
	// ReadCounts counts the reads of the dataset's storage, not those of a spool.
	ReadCounts
	// GapBytes is what is read and discarded.
	GapBytes int64
	// Plan is how the reads of a gatherer are planned.
	Plan plan.Config

	Pieces    uint64 // read or decoded, each counted once
	KeptBytes int64  // the most that has been read and not delivered at any time, if memory holds it
	Fits      bool   // each piece is read once: memory holds what waits
	Chunks    uint64 // decoded for records that are computed from them (Options.DryOver)
	// Estimated means that the counts are close but not exact: how far real decoders run ahead of a
	// reader depends on their speed, and how much of a file they read up to a position within a
	// member is interpolated.
	Estimated    bool
	DecodedBytes int64  // output of the decoders of compressed shards, needed or not, or of chunks
	Passes       uint64 // decoders opened
	Compressed   uint64 // shards for which decoders are opened
	Spooled      uint64 // shards decoded to the spool; each time counts
}

// When a dry run stops and extrapolates. Each limit is about two seconds of work.
const (
	// mostDryRecords is the number of records that it simulates if they fill memory twice;
	// otherwise it continues up to moreDryRecords.
	mostDryRecords = 1 << 20
	moreDryRecords = 1 << 21
	// mostDryPieces and mostDryBytes limit what a scan loads (again and again if memory is short),
	// and what dry decoders decode.
	mostDryPieces = 1 << 17
	mostDryBytes  = 32 << 30
	// mostDryWants limits the parts of chunks that crops are put together from.
	mostDryWants = 1 << 20
)

// lendRecords is how many records a dry run asks for at a time, as a stream does.
const lendRecords = 256

// replyBytes is the size of a stream's reply.
const replyBytes = 1 << 20

// DryRun simulates a read of records 0 … n-1 of a sequence, all in the given phase, and returns
// what it takes if shards are read as how says. It runs the same scanner or gatherer as a reader,
// with the same memory, over a storage that answers at once without data. Decoders produce no data,
// and advance only while the reader waits, as if the reader spent no time between its calls. So it
// counts about what would really happen. Without a spool it is the same each time.
//
// It reads nothing, but for sizes of what records are computed from (Options.DryOver). It allocates
// the tables of pieces and the buffers of decoders, but no memory for records. If there are more than about a million records it simulates the first ones, and
// extrapolates from their second half. It ends early with the context's error.
func (s *Survey) DryRun(ctx context.Context, seq Sequence, phase Subset, n uint64, how Choice) (Forecast, error) {
	d, err := s.newDryRun(ctx, how)
	if err != nil {
		return Forecast{}, err
	}
	defer d.close()
	if phase.Part == nil {
		phase.Part = chunkmap.All{}
	}
	return d.run(ctx, seq, phase, min(n, seq.Len()))
}

// dryRun is a fetcher that reads nothing, and its counts.
type dryRun struct {
	*Fetcher
	storage *dryStorage
	over    options.DryStorage // over storage; nil: nothing
	index   *dryIndex
}

// newDryRun makes a fetcher of the same dataset and settings with the given choice.
func (s *Survey) newDryRun(ctx context.Context, how Choice) (_ *dryRun, err error) {
	d := &dryRun{storage: newDryStorage(s.o.Caps), index: newDryIndex(s.o.Index)}
	o := s.o
	o.Memory, o.Meter, o.Note, o.Released = nil, new(meter.Meter), nil, nil
	o.Log = slog.New(slog.DiscardHandler)
	o.SetDefaults()
	d.Fetcher = &Fetcher{Survey: Survey{o: o, sizes: s.sizes}, share: o.Memory.Share(), told: o.Note}
	d.o.SetInput(d.index, d.storage)
	if o.DryOver != nil {
		if d.over, err = o.DryOver(ctx, d.storage); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				_ = d.over.Close() // it has nothing to lose
			}
		}()
		d.o.SetInput(d.index, d.over)
	}
	d.o.Verifier = nil // there is no data to verify
	d.o.Dry = &options.Dry{Raw: d.storage.completeNow, Complete: d.complete}
	d.o.Survey, d.o.Choice, d.o.Ask, d.o.Note = s.sizes, how, d.share.Ask, d.note
	d.storage.atOnce = how.Strategy == spec.ReadGather && d.over == nil
	var shelf *diskcache.Shelf
	if how.Spooled != nil {
		if o.Spool.DryKeep != nil {
			shelf = o.Spool.DryKeep(s.keptShards(&how))
		}
		if shelf == nil {
			shelf = diskcache.NewDrySpool(how.SpoolBytes, o.MemoryBytes/spoolTablesPart)
		}
	}
	if err := d.startRoom(shelf); err != nil {
		if shelf != nil {
			err = errors.Join(err, shelf.Close())
		}
		return nil, err
	}
	d.share.Join(d.member())
	return d, nil
}

// close ends a dry run. Its memory was never touched, so errors of unmapping don't matter.
func (d *dryRun) close() {
	for d.complete() {
	}
	_ = d.Close()
	if d.over != nil {
		_ = d.over.Close()
	}
}

// complete does what can be done without completing a read, or else completes the oldest read: what
// a read takes is long in comparison. It reports whether there was anything to do.
func (d *dryRun) complete() bool { return d.over != nil && d.over.Step() || d.storage.complete() }

// run simulates reading n records, or the first of them.
func (d *dryRun) run(ctx context.Context, seq Sequence, phase Subset, n uint64) (Forecast, error) {
	r := d.OpenPhase(firstOf{seq, n}, phase)
	defer r.Close()
	w := d.newWaits(phase.Part)
	marks := []counts{{}}
	numbers := make([]uint64, lendRecords)
	var loan Loan
	k, reply := uint64(0), d.replyRecords()
	for k < n && !d.enough(k) {
		if k >= 2*marks[len(marks)-1].records {
			marks = append(marks, d.count(k))
		}
		if err := ctx.Err(); err != nil {
			return Forecast{}, err
		}
		if err := r.Read(ctx, k, int(reply-k%reply), &loan); err != nil {
			return Forecast{}, err
		}
		m := seq.Records(k, numbers[:len(loan.Records)])
		w.lent(numbers[:m])
		k += uint64(m)
		loan.Release()
		if m == 0 {
			break // the sequence is shorter than its Len
		}
	}
	f := Forecast{KeptBytes: w.most}
	if d.gatherer != nil {
		f.Plan = d.gatherer.PlanConfig()
	}
	c := d.count(k)
	f.Fits = c.again == 0 // nothing was dropped that was needed again
	if k < n {
		from := marks[0]
		for _, m := range marks {
			if m.records <= k/4*3 {
				from = m
			}
		}
		c.extrapolate(from, n)
		f.CountedRecords = k
	}
	c.fill(&f)
	f.Pieces = min(f.Pieces, uint64(d.o.Survey.Places.Table.Len()))
	_, f.Compressed = d.index.decoders()
	f.Estimated = k < n || f.Compressed > 0
	return f, nil
}

// replyRecords is how many records a reader asks for one after the other before it has to come back
// for more, which is when it counts as reading on.
func (d *dryRun) replyRecords() uint64 {
	if d.over == nil {
		return lendRecords
	}
	h := &d.o.Survey.Held
	return uint64(min(max(replyBytes/max(h.Bytes/max(int64(h.Records), 1), 1), 1), lendRecords))
}

// enough reports whether a dry run that has reached record k may stop.
func (d *dryRun) enough(k uint64) bool {
	if d.scanner != nil {
		if x := d.scanner.Stats(); x.PiecesRead >= mostDryPieces || x.DecodedBytes >= mostDryBytes {
			return true
		}
	}
	if d.over != nil && d.over.Counts().Wants >= mostDryWants {
		return true
	}
	if k < mostDryRecords {
		return false
	}
	return k >= moreDryRecords || d.storage.counted().ReadBytes >= 2*d.o.MemoryBytes
}

// counts are a dry run's counts at some record.
type counts struct {
	records        uint64
	reads          ReadCounts
	pieces, again, // again: of pieces that had been dropped
	decoded, passes, spooled, lent uint64
	chunks uint64
}

func (d *dryRun) count(k uint64) counts {
	s := d.Stats()
	c := counts{records: k, reads: d.storage.counted(), pieces: s.PiecesRead - s.PiecesReread, again: s.PiecesReread, decoded: s.DecodedBytes, lent: s.BytesOut}
	c.passes, _ = d.index.decoders()
	if d.over != nil {
		x := d.over.Counts()
		c.chunks, c.decoded = x.Decoded, c.decoded+x.DecodedBytes
	}
	if s.Spool != nil {
		c.spooled = s.Spool.Decoded
	}
	return c
}

// extrapolate extends the counts up to record n, at the rate between from and now.
func (c *counts) extrapolate(from counts, n uint64) {
	times := float64(n-c.records) / float64(c.records-from.records)
	grow := func(now *uint64, before uint64) { *now += uint64(times * float64(*now-before)) }
	c.reads.Reads = 0
	for i := range c.reads.ByLength {
		grow(&c.reads.ByLength[i], from.reads.ByLength[i])
		c.reads.Reads += c.reads.ByLength[i]
	}
	c.reads.ReadBytes += int64(times * float64(c.reads.ReadBytes-from.reads.ReadBytes))
	grow(&c.pieces, from.pieces)
	grow(&c.decoded, from.decoded)
	grow(&c.passes, from.passes)
	grow(&c.spooled, from.spooled)
	grow(&c.lent, from.lent)
	grow(&c.chunks, from.chunks)
}

func (c *counts) fill(f *Forecast) {
	f.ReadCounts, f.Pieces, f.DecodedBytes, f.Passes, f.Spooled = c.reads, c.pieces, int64(c.decoded), c.passes, c.spooled
	f.Chunks = c.chunks
	f.GapBytes = max(c.reads.ReadBytes-int64(c.lent), 0)
}

// waits adds up the bytes of pieces that have been read and not delivered, if each piece is read
// once. It follows from the order alone.
type waits struct {
	places    *chunkmap.Map // nil: nothing is added up
	index     chunkmap.Index
	seen      []uint64 // one bit per piece
	now, most int64
	extents   []catalog.Extent
}

func (d *dryRun) newWaits(part Part) waits {
	if d.scanner == nil {
		return waits{}
	}
	p := d.o.Survey.Places.Of(part)
	return waits{places: p, index: d.o.Index, seen: make([]uint64, (p.Table.Len()+63)/64), extents: make([]catalog.Extent, lendRecords)}
}

// lent adds records that are delivered.
func (w *waits) lent(records []uint64) {
	if w.places == nil {
		return
	}
	w.index.Extents(records, w.extents[:len(records)])
	for i, record := range records {
		number := w.places.Table.Of(record)
		if x, bit := &w.seen[number>>6], uint64(1)<<(number&63); *x&bit == 0 {
			*x |= bit
			_, l := w.places.Layout(number, func(int) int64 { return 0 })
			for _, s := range l.Spans {
				w.now += max(s.SizeBytes, 0)
			}
			w.most = max(w.most, w.now)
		}
		w.now = max(w.now-w.extents[i].SizeBytes, 0)
	}
}

// firstOf is the first n records of a sequence.
type firstOf struct {
	Sequence
	n uint64
}

func (s firstOf) Len() uint64   { return s.n }
func (s firstOf) Epoch() uint64 { return chunkmap.EpochOf(s.Sequence) }

func (s firstOf) Records(k uint64, dst []uint64) int {
	if k >= s.n {
		return 0
	}
	return s.Sequence.Records(k, dst[:min(uint64(len(dst)), s.n-k)])
}

// ReadCounts counts the reads of a storage.
type ReadCounts struct {
	Reads     uint64
	ReadBytes int64
	ByLength  [65]uint64 // reads by the bit length of their size in bytes
}

// Add counts a read.
func (r *ReadCounts) Add(bytes int64) {
	r.Reads++
	r.ReadBytes += bytes
	r.ByLength[bits.Len64(uint64(bytes))]++
}

// dryStorage completes each read without data, and counts it. Reads of a scanner complete when
// complete is called, on the caller's goroutine: reads in progress take memory, which determines
// what can be kept.
type dryStorage struct {
	storage.Storage // nil: only Submit and Caps are called
	caps            storage.Caps

	// atOnce means that Submit completes reads: when they complete does not matter to a gatherer.
	atOnce bool

	mu     sync.Mutex
	counts ReadCounts
	queue  []*storage.Read // oldest first; those before next are nil
	next   int
}

// Submit implements storage.Storage.
func (s *dryStorage) Submit(reads []*storage.Read) {
	if s.atOnce {
		s.completeNow(reads)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, reads...)
}

// completeNow completes reads at once. It is for decoders and gatherers, which may be called back
// while they submit reads.
func (s *dryStorage) completeNow(reads []*storage.Read) {
	for _, r := range reads {
		s.done(r)
	}
}

// complete completes the oldest read, and reports whether there was one.
func (s *dryStorage) complete() bool {
	s.mu.Lock()
	if s.next == len(s.queue) {
		s.mu.Unlock()
		return false
	}
	r := s.queue[s.next]
	s.queue[s.next] = nil
	if s.next++; s.next == len(s.queue) {
		s.queue, s.next = s.queue[:0], 0
	}
	s.mu.Unlock()
	s.done(r)
	return true
}

func (s *dryStorage) done(r *storage.Read) {
	if r.Wanted != nil && !r.Wanted() {
		r.Done(storage.ErrUnwanted)
		return
	}
	s.mu.Lock()
	s.counts.Add(int64(len(r.Buf)))
	s.mu.Unlock()
	r.Done(nil)
}

func (s *dryStorage) counted() ReadCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Caps implements storage.Storage.
func (s *dryStorage) Caps() storage.Caps { return s.caps }

// dryHints ignores hints, which affect real reads only. It has the room of a real storage.
type dryHints struct{ use storage.HintUse }

var _ storage.Hints = dryHints{}

func (dryHints) Want(uint64, []storage.Block)   {}
func (dryHints) Passed(uint64, []storage.Block) {}
func (dryHints) Drop(uint64)                    {}
func (h dryHints) Use() storage.HintUse         { return h.use }
func (dryHints) SetShare(int64)                 {}

// newDryStorage returns a storage with those capabilities of another one that affect what is read.
// Nothing is mapped: a dry run assumes a cold page cache.
func newDryStorage(other storage.Caps) *dryStorage {
	s := new(dryStorage)
	if other.Hints != nil && !other.Hints.Use().Exact {
		s.caps.Hints = dryHints{other.Hints.Use()}
	}
	return s
}
