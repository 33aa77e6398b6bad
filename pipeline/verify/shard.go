package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// worker reads shards, one after the other.
type worker struct {
	ctx     context.Context
	run     *run
	forward reading
	extents extents
	payload payload
	claimed int  // the shard to read next
	claims  bool // claimed is set
}

func newWorker(ctx context.Context, r *run) (*worker, error) {
	w := &worker{ctx: ctx, run: r}
	arrived := func(n int64) { r.bytes.Add(n) }
	p := r.config.Profile
	if r.streams != nil {
		w.forward = newStreamed(ctx, r.streams, p.Pass, arrived)
		return w, nil
	}
	f, err := newForward(ctx, r.config.Storage, p.ReadBytes, r.depth, arrived)
	if err != nil {
		return nil, err
	}
	w.forward = f
	return w, nil
}

func (w *worker) close() { w.forward.close() }

// work reads shards until none is left.
func (w *worker) work() error {
	for w.ctx.Err() == nil {
		if !w.claims {
			w.claim()
		}
		if !w.claims {
			break
		}
		w.claims = false
		number := w.claimed
		if a := w.run.config.Verifier; a != nil {
			w.run.results[number] = w.audit(a, number)
		} else {
			w.run.results[number] = w.shard(number)
		}
		if w.run.results[number].unread != "" {
			w.run.unread.Add(1)
		}
		w.run.shards.Add(1)
	}
	return w.ctx.Err()
}

// claim takes the next shard from the queue, if there is one.
func (w *worker) claim() (storage.Object, bool) {
	r := w.run
	i := int(r.next.Add(1)) - 1
	if w.claims = i < len(r.queue) && r.unread.Load() < maxUnread; !w.claims {
		return storage.Object{}, false
	}
	w.claimed = r.queue[i]
	return r.config.Catalog.Shard(w.claimed).Object, true
}

// audit lets the storage read the files that a shard is computed from. If the context has ended,
// the result is meaningless.
func (w *worker) audit(a storage.Verifier, number int) (r result) {
	s := w.run.config.Catalog.Shard(number)
	damage := func(reason string) {
		r.add(Finding{Shard: s.Object.Path, Record: -1, OffsetBytes: -1, RawOffset: -1, Reason: reason})
	}
	var err error
	if r.decodedBytes, err = a.Audit(w.ctx, s.Object, damage, func(n int64) { w.run.bytes.Add(n) }); err != nil {
		r.unread = reasonOf(s.Object.Path, err)
	}
	r.records = s.Records
	w.run.records.Add(s.Records)
	return r
}

// described returns the format of a shard, with the file that describes it if there is one.
func (w *worker) described(f format.Format, path string) (described format.Format, closes func(), err error) {
	var beside storage.Object
	if pairs, ok := f.(format.Paired); ok && pairs.Companion(path) != "" {
		beside, err = w.run.config.Storage.Stat(w.ctx, pairs.Companion(path))
		if errors.Is(err, fs.ErrNotExist) {
			beside, err = storage.Object{}, nil
		}
	}
	described, closes = catalog.Described(w.ctx, w.run.config.Storage, f, beside)
	return described, closes, err
}

// shard reads one shard. If the context has ended, the result is meaningless.
func (w *worker) shard(number int) result {
	c := w.run.config.Catalog
	s := c.Shard(number)
	var r result
	finding := func(record, offset, raw int64, format string, args ...any) {
		r.add(Finding{s.Object.Path, record, offset, raw, fmt.Sprintf(format, args...)})
	}
	if err := w.forward.open(s.Object, w.claim); err != nil {
		return r
	}
	w.extents.open(c, s)
	w.payload.open(c, s)
	told := uint64(0)
	emit := func(e format.Extent) error {
		w.extents.compare(e)
		if w.extents.seen-told >= 1024 {
			w.run.records.Add(w.extents.seen - told)
			told = w.extents.seen
		}
		return nil
	}
	restart := func() { w.extents.restart() }
	codec := w.run.room.Codec(w.ctx, s.Codec)
	if !s.Parts && w.payload.check != nil { // formats with parts have no own checksums
		codec = tee{inner: codec, begin: w.payload.restart, look: w.payload.look}
	}
	unpacker, closeBeside, err := w.described(c.Unpacker(), s.Object.Path)
	if err != nil {
		r.unread = reasonOf(s.Object.Path, err)
		return r
	}
	defer closeBeside()
	sum, err := format.Scan(w.ctx, unpacker, codec, w.forward, s.Object.SizeBytes, emit, restart)
	if codec == nil {
		_ = w.forward.rest() // bytes that the scan did not need; an error is the context's, or in failed
	}
	w.run.records.Add(w.extents.seen - min(told, w.extents.seen))
	r.records, r.decodedBytes = w.extents.seen, sum.DecodedBytes
	var refused *format.RefusedError
	switch {
	case w.ctx.Err() != nil:
		return r
	case w.forward.failed() != nil:
		r.unread = reasonOf(s.Object.Path, w.forward.failed())
		return r
	case errors.As(err, &refused):
		finding(-1, refused.OffsetBytes, -1, "%s", refused.Reason)
	case err != nil:
		finding(-1, -1, -1, "%s", reasonOf(s.Object.Path, err))
		return r
	default:
		lost := sum.Lost()
		for _, d := range lost.First {
			finding(d.Record, d.OffsetBytes, d.RawOffset, "%s", d.PartReason())
		}
		for _, reason := range lost.Reasons {
			r.total += reason.Count
		}
		r.total -= uint64(len(lost.First)) // already counted
	}
	if d := w.extents.difference(sum); d != nil {
		finding(d.record, d.offset, -1, "%s", d.reason)
	} else if u, ok := c.Unpacker().(format.Uniform); ok && s.Records > 0 && !u.SameKind(c.Kind(), sum.Kind) {
		told := fmt.Sprintf("holds %q, but %q according to the index", sum.Kind, c.Kind())
		if d, ok := u.(format.Differ); ok {
			told = cmp.Or(d.Differences(sum.Kind, c.Kind()), told)
		}
		finding(-1, -1, -1, "%s%s", told, changedUnseen)
	}
	for _, f := range w.payload.found {
		finding(f.record, f.offset, -1, "%s", f.reason)
	}
	r.total += w.payload.more
	return r
}

// difference is a mismatch between a shard and its index, or between a record and its checksum.
type difference struct {
	record, offset int64
	reason         string
}

// windowRecords is the number of extents that are looked up in the catalog at a time.
const windowRecords = 1024

// window iterates over the catalog's extents of one shard.
type window struct {
	catalog *catalog.Catalog
	shard   catalog.Shard
	first   uint64 // ordinal of extents[0]
	numbers []uint64
	extents []catalog.Extent
	hashes  []uint64
	keyed   bool
}

func (w *window) open(c *catalog.Catalog, s catalog.Shard) {
	w.catalog, w.shard = c, s
	w.extents = w.extents[:0]
	if w.numbers == nil {
		w.numbers = make([]uint64, windowRecords)
		w.extents = make([]catalog.Extent, 0, windowRecords)
		w.hashes = make([]uint64, windowRecords)
	}
}

// at returns the extent and the key hash of an ordinal, which the shard must have.
func (w *window) at(ordinal uint64) (catalog.Extent, uint64) {
	if ordinal < w.first || ordinal-w.first >= uint64(len(w.extents)) {
		w.first = ordinal
		n := min(windowRecords, w.shard.Records-ordinal)
		w.extents = w.extents[:n]
		for i := range w.extents {
			w.numbers[i] = w.shard.First + ordinal + uint64(i)
		}
		w.catalog.Extents(w.numbers[:n], w.extents)
		w.keyed = w.catalog.KeyHashes(w.numbers[:n], w.hashes[:n])
		if !w.keyed {
			clear(w.hashes)
		}
	}
	return w.extents[ordinal-w.first], w.hashes[ordinal-w.first]
}

// extents compares the records that a pass finds with the index.
type extents struct {
	window
	seen    uint64 // number of records of this pass
	differs *difference
}

func (x *extents) open(c *catalog.Catalog, s catalog.Shard) {
	x.window.open(c, s)
	x.restart()
}

func (x *extents) restart() { x.seen, x.differs = 0, nil }

// compare checks the next record of the pass.
func (x *extents) compare(e format.Extent) {
	n := x.seen
	x.seen++
	if x.differs != nil || n >= x.shard.Records {
		return
	}
	is, hash := x.at(n)
	switch {
	case is.OffsetBytes != e.OffsetBytes || is.SizeBytes != e.SizeBytes:
		x.differs = &difference{int64(n), e.OffsetBytes, fmt.Sprintf("has %d bytes at offset %d, but %d bytes at offset %d according to the index",
			e.SizeBytes, e.OffsetBytes, is.SizeBytes, is.OffsetBytes)}
	case x.keyed && hash != e.KeyHash:
		x.differs = &difference{int64(n), e.OffsetBytes, "has a different key than in the index"}
	}
}

// changedUnseen ends the messages about a shard that does not match its index.
const changedUnseen = ": the contents changed although size and time did not; lsiofs index --rebuild indexes the new contents"

// difference returns the first mismatch between a shard and its index, or nil.
func (x *extents) difference(sum format.Summary) *difference {
	switch {
	case x.differs != nil:
		d := *x.differs
		d.reason += changedUnseen
		return &d
	case x.seen != x.shard.Records:
		return &difference{int64(min(x.seen, x.shard.Records)), sum.DecodedBytes,
			fmt.Sprintf("%d records, but %d according to the index", x.seen, x.shard.Records) + changedUnseen}
	}
	return nil
}

// payload checks the bytes of records, if their format has checksums for them. Records are in the
// order of their offsets.
type payload struct {
	window
	check  format.Check // nil if there is nothing to check
	next   uint64       // ordinal of the current record
	come   int64        // its bytes so far
	offset int64        // offset of the next byte in the decoded shard
	found  []difference
	more   uint64 // number of further ones, not kept
}

func (p *payload) open(c *catalog.Catalog, s catalog.Shard) {
	p.window.open(c, s)
	if v, ok := c.Unpacker().(format.Verifier); ok && p.check == nil {
		p.check = v.NewCheck()
	}
}

// restart returns to the start of the shard.
func (p *payload) restart() {
	p.next, p.come, p.offset, p.found, p.more = 0, 0, 0, nil, 0
}

// look processes the next decoded bytes.
func (p *payload) look(b []byte) {
	for len(b) > 0 && p.next < p.shard.Records {
		e, _ := p.at(p.next)
		if skip := e.OffsetBytes - p.offset; skip > 0 {
			n := min(skip, int64(len(b)))
			b, p.offset = b[n:], p.offset+n
			continue
		}
		if p.come == 0 {
			p.check.Begin(e.SizeBytes)
		}
		n := min(e.SizeBytes-p.come, int64(len(b)))
		p.check.Add(b[:n])
		b, p.offset, p.come = b[n:], p.offset+n, p.come+n
		if p.come == e.SizeBytes {
			p.end(e)
		}
	}
	p.offset += int64(len(b))
}

// end finishes a record.
func (p *payload) end(e catalog.Extent) {
	if err := p.check.End(); err != nil {
		if len(p.found) < maxShardFindings {
			p.found = append(p.found, difference{int64(p.next), e.OffsetBytes, err.Error()})
		} else {
			p.more++
		}
	}
	p.next++
	p.come = 0
}
