package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// pass indexes shards, several at a time, and stores each one that is finished. Besides decoders
// (room) and index entries of records (admission), each shard takes some buffers.
type pass struct {
	storage   storage.Storage
	reads     storage.Storage // storage, for ordinary reads
	streams   storage.Storage // storage, if shards are read as streams; else nil
	unpacker  format.Format
	onCorrupt spec.OnCorrupt
	build     *index.Build
	progress  *reporter
	portions  storage.Pass
	room      *DecoderRoom
	admission *admission
	atATime   int // shards
}

// newPass returns a pass for o.found, within the configured memory: half of it is for decoders, and
// a quarter each for buffers and for index entries of records.
func (o *opening) newPass(b *index.Build) *pass {
	memory, cores := max(o.MemoryBytes, LeastDecoderBytes), runtime.GOMAXPROCS(0)
	p := &pass{
		storage: o.storage, reads: o.reads, unpacker: o.found.Unpacker, onCorrupt: o.OnCorrupt, build: b, progress: o.reporter,
		portions: o.Profile.Or().Pass, room: NewDecoderRoom(memory/2, cores), admission: newAdmission(memory / 4),
	}
	p.streams = streamsOf(o.storage, p.portions)
	p.atATime = ShardsAtATime(p.portions, p.streams != nil, memory/4, cores)
	return p
}

// ShardsAtATime returns how many shards are read at a time on a machine with that many cores: as
// many as the profile asks for and whose buffers take at most boundBytes, but no fewer than the
// lesser of the profile's number and the cores. streamed reports whether they are read as streams.
func ShardsAtATime(p storage.Pass, streamed bool, boundBytes int64, cores int) int {
	each := 2*p.ReadBytes + smallBuffers // a window of the shard, and the storage's buffer
	if streamed {
		each = 2*p.StreamBytes + smallBuffers // a window, and occasionally a longer one
	}
	most := p.ShardsAtATime(cores)
	return max(min(most, int(boundBytes/each)), min(most, cores), 1)
}

// smallBuffers is the other memory of a shard: a decoder's input of 256 KiB, decoded bytes, a
// connection's buffers, the stacks of its goroutines.
const smallBuffers = 384 << 10

// run indexes shards[i] for all i in todo. It ends at the first failure; what was finished by then
// is kept.
func (p *pass) run(ctx context.Context, shards []discover.Shard, todo []int) error {
	// Large shards first: a large one at the end would leave cores idle.
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(i, j int) int {
		return int(min(1, max(-1, shards[j].Object.SizeBytes-shards[i].Object.SizeBytes)))
	})
	return p.each(ctx, shards, todo, func(ctx context.Context, i int, held *admitted) error {
		done, err := p.shard(ctx, shards[i], held)
		if err != nil {
			return err
		}
		return p.build.Add(i, done)
	})
}

// each calls do for shards[i] for all i in todo, in that order and for several at a time, up to the
// first failure.
func (p *pass) each(ctx context.Context, shards []discover.Shard, todo []int, do func(ctx context.Context, i int, held *admitted) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.atATime)
	for _, i := range todo {
		held, err := p.admission.begin(gctx, shards[i].Object.SizeBytes)
		if err != nil {
			break
		}
		g.Go(func() error {
			defer held.end()
			if err := gctx.Err(); err != nil {
				return err
			}
			return do(gctx, i, held)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// shard indexes one shard.
func (p *pass) shard(ctx context.Context, c discover.Shard, held *admitted) (index.Shard, error) {
	if check := p.storage.Caps().Check; check != nil {
		if err := check(ctx, c.Object); errors.Is(err, storage.ErrChanged) {
			return index.Shard{}, errChangedMeanwhile(c.Object.Path, err)
		} else if err != nil { // damaged or unreadable; the error names the shard
			return index.Shard{}, fmt.Errorf("%s: %w", c.Object.Path, err)
		}
	}
	r, err := p.open(ctx, c)
	defer r.close()
	if err != nil {
		return index.Shard{}, unread(ctx, c.Object.Path, err)
	}
	if c.Assumed {
		if err := r.asNamed(ctx); err != nil {
			return index.Shard{}, err
		}
	}
	codecOf, err := r.codec(p.unpacker, c)
	codec := p.room.Codec(ctx, codecOf)
	unpacker, closeBeside := Described(ctx, p.reads, p.unpacker, c.Beside)
	defer closeBeside()
	_, keyed := unpacker.(format.Renamer)
	packer := index.NewPacker(keyed, codec != nil, p.admission.boundBytes)
	r.told = func(reached int64) { held.reached(reached, packer.HeldBytes()) }
	var records uint64 // already added to progress
	tell := func() {
		p.progress.records.Add(packer.Records() - records)
		records = packer.Records()
	}
	emit := func(e format.Extent) error {
		if packer.Records()&1023 == 0 {
			tell()
			if codec == nil { // skipped bytes are not read, but done
				r.advance(e.OffsetBytes)
			}
		}
		return packer.Add(e)
	}
	restart := func() { packer.Restart(); tell() }
	var sum format.Summary
	if err == nil {
		sum, err = format.Scan(ctx, unpacker, codec, r, c.Object.SizeBytes, emit, restart)
	}
	name := c.Object.Path
	if named := formats.ParseName(name).Codec; named != nil && codecOf == nil {
		name += " (not " + named.Name() + ", unlike its name)"
	}
	if err != nil || r.failure != nil { // a decoder may have taken a failed read for the end of the data
		return index.Shard{}, p.judge(ctx, c, name, r.failure, err)
	}
	if codec == nil {
		sum.DecodedBytes = c.Object.SizeBytes
	}
	if lost := sum.Lost(); len(lost.First) > 0 && p.onCorrupt != spec.CorruptSkip {
		next := "repair or remove the file; --on-corrupt skip leaves out only what is damaged"
		if packer.Records() == 0 { // it may be intact, and of another kind
			next = "leave it out with --exclude if it is not a shard; repair or remove it if it is damaged (--on-corrupt skip leaves it out)"
		}
		return index.Shard{}, fmt.Errorf("%s: %w: %s", name, lost.First[0], next)
	}
	// With an outline, nothing was read that could have changed, and a stream is always of the
	// version that was listed.
	if r.outline == nil && p.streams == nil {
		if err := p.unchanged(ctx, c.Object); err != nil {
			return index.Shard{}, err
		}
	}
	if c.Beside.Path != "" {
		if err := p.unchanged(ctx, c.Beside); err != nil {
			return index.Shard{}, err
		}
	}
	done, err := packer.Finish(sum)
	if err != nil {
		return index.Shard{}, fmt.Errorf("%s: %w", c.Object.Path, err)
	}
	tell()
	r.advance(c.Object.SizeBytes)
	p.progress.shards.Add(1)
	return index.Shard{Object: c.Object, Codec: formats.CodecNumber(codecOf), Blob: done}, nil
}

// judge returns the error of a scan that failed, or whose reads failed. Damage that may be left out
// is not an error but in the scan's summary. A refusal has name in place of the path.
func (p *pass) judge(ctx context.Context, c discover.Shard, name string, failure, err error) error {
	if failure != nil {
		return unread(ctx, c.Object.Path, failure)
	}
	var refused *format.RefusedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused) && refused.Settings:
		return fmt.Errorf("%s: %w", name, err)
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w; or leave the file out with --exclude or a pattern (--on-corrupt skip does not)", name, err)
	case errors.Is(err, storage.ErrChanged):
		return errChangedMeanwhile(c.Object.Path, err)
	}
	return fmt.Errorf("%s: %w", c.Object.Path, err)
}

// unread returns the error for a shard that could not be read because of err.
func unread(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, storage.ErrChanged) || errors.Is(err, fs.ErrNotExist):
		return errChangedMeanwhile(path, err)
	}
	return discover.Unread(path, err)
}

func errChangedMeanwhile(path string, err error) error {
	return fmt.Errorf("%s changed while it was being indexed: wait until it is written, then run again: %w", path, err)
}

// unchanged fails if an object has changed since it was listed.
func (p *pass) unchanged(ctx context.Context, o storage.Object) error {
	now, err := p.storage.Stat(ctx, o.Path)
	if err != nil {
		return unread(ctx, o.Path, err)
	}
	if err := storage.Compare(o, now); err != nil {
		return errChangedMeanwhile(o.Path, err)
	}
	return nil
}

// counters are updated by workers to report their progress.
type counters struct {
	shards  atomic.Int64
	bytes   atomic.Int64
	records atomic.Uint64
}

// admission limits how many shards are indexed at a time. Until a shard is finished, the index
// entries of its records are held in memory. Their size is estimated from everything read so far
// from all shards: for images in tars it is a 10 000th of the file, for short lines a 20th. Shards
// may begin as long as the expected total stays within a bound. One shard may always run; it fails
// if it exceeds the bound by itself (index.NewPacker). It is safe for concurrent use.
type admission struct {
	boundBytes int64

	mu      sync.Mutex
	wake    chan struct{} // buffered with one element: something has changed
	running map[*admitted]struct{}
	read    int64 // bytes of finished shards
	held    int64 // bytes that were held for them at their end
}

// admitted is a shard that is being indexed.
type admitted struct {
	of         *admission
	size       int64 // of the file
	read, held int64 // bytes
}

func newAdmission(boundBytes int64) *admission {
	return &admission{boundBytes: boundBytes, wake: make(chan struct{}, 1), running: map[*admitted]struct{}{}}
}

// begin waits until a shard of sizeBytes may begin. It must be called from one goroutine.
func (a *admission) begin(ctx context.Context, sizeBytes int64) (*admitted, error) {
	for {
		if s := a.try(sizeBytes); s != nil {
			return s, nil
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *admission) try(sizeBytes int64) *admitted {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.running) > 0 && a.expected(sizeBytes) > float64(a.boundBytes) {
		return nil
	}
	s := &admitted{of: a, size: sizeBytes}
	a.running[s] = struct{}{}
	return s
}

const (
	// enoughBytes is how many bytes must have been read before the measured share of held bytes is
	// used.
	enoughBytes = 1 << 20
	// mostHeld is the share assumed until then: lines of 4 bytes take that much, lines of 2 bytes
	// twice as much.
	mostHeld = 0.25
	// margin allows for shards that are unlike the others, and for the growth of slices.
	margin = 1.5
)

// expected returns how many bytes will be held once another shard of sizeBytes has begun. mu must
// be held.
func (a *admission) expected(sizeBytes int64) float64 {
	read, held := a.read, a.held
	for s := range a.running {
		read, held = read+s.read, held+s.held
	}
	share := mostHeld
	if read >= enoughBytes {
		share = margin * float64(held) / float64(read)
	}
	all := share * float64(sizeBytes)
	for s := range a.running {
		all += max(share*float64(s.size), float64(s.held))
	}
	return all
}

// reached records how much of a shard has been read, and how many bytes are held for its records.
func (s *admitted) reached(readBytes, heldBytes int64) {
	s.of.change(func() { s.read, s.held = readBytes, heldBytes })
}

// end reports that nothing is held for a shard any more.
func (s *admitted) end() {
	s.of.change(func() {
		delete(s.of.running, s)
		s.of.read, s.of.held = s.of.read+s.read, s.of.held+s.held
	})
}

func (a *admission) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Progress of a build. Bytes are those of raw shards.
type Progress struct {
	Shards, ShardsTotal int   // of the shards to index, without those that are reused
	Bytes, BytesTotal   int64 // likewise
	Records             uint64
	Reused              int // shards whose stored index is still valid
	Elapsed             time.Duration
	Done                bool
}

// progressInterval is short enough for a progress bar to move smoothly.
const progressInterval = 100 * time.Millisecond

// Tell periodically calls report with the result of now, from one goroutine, which lives until stop
// is called; report may be nil. Elapsed and Done are filled in. stop waits for the last report,
// which has Done set only if done is; of several calls to stop the first counts.
func Tell(report func(Progress), now func() Progress) (stop func(done bool)) {
	if report == nil {
		return func(bool) {}
	}
	began := time.Now()
	ready, ended := make(chan bool, 1), make(chan struct{})
	tell := func(done bool) {
		p := now()
		p.Elapsed, p.Done = time.Since(began), done
		report(p)
	}
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				tell(false)
			case done := <-ready:
				if done {
					tell(true)
				}
				return
			}
		}
	}()
	var once sync.Once
	return func(done bool) {
		once.Do(func() { ready <- done })
		<-ended
	}
}

// reporter is the progress of a build: what workers count, and totals.
type reporter struct {
	counters
	totals atomic.Pointer[Progress] // nil until they are known
	stop   func(done bool)
}

func newReporter(report func(Progress)) *reporter {
	r := &reporter{}
	r.stop = Tell(report, r.now)
	return r
}

// planned sets the totals. It resets what was counted under an earlier plan.
func (r *reporter) planned(totals Progress) {
	r.shards.Store(0)
	r.bytes.Store(0)
	r.records.Store(0)
	r.totals.Store(&totals)
}

func (r *reporter) now() Progress {
	var p Progress
	if totals := r.totals.Load(); totals != nil {
		p = *totals
	}
	p.Shards, p.Bytes = int(r.shards.Load()), r.bytes.Load()
	p.Records += r.records.Load()
	return p
}
