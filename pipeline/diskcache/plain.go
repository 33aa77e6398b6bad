package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Plain presents compressed shards as objects that are not compressed: all of them are in the
// cache, decoded and complete. It is a storage of these objects, which are read, sealed and mapped
// like others in the cache. What a disk loses of them is decoded again, as other objects are
// fetched again.
//
// Several Plains may present the same shards. Its methods may be called concurrently.
type Plain struct {
	s       *Storage
	decode  func(shard int, write func([]byte) error) error
	objects map[int]storage.Object // by shard
	shards  map[storage.Object]*plainShard
	ended   sync.WaitGroup // passes
	pass    sync.Mutex     // held while decoding

	mu      sync.Mutex
	closed  bool
	waiting map[int][]*storage.Read // by shard, for the next pass
}

// plainShard is a shard of a Plain.
type plainShard struct {
	of    *Plain
	shard int
	id    Identity
	key   key
	held  *object // open, so that no mount removes it; owned by of
}

var _ storage.Storage = (*Plain)(nil)

// OpenPlain presents the shards that c describes, if all of them are complete in the cache;
// otherwise it returns nil. Identify and DecodedBytes of c are as for NewShelf. raw returns the
// object of a shard. decode decodes a shard from front to back, and returns an error unless it was
// valid to its end.
func (s *Storage) OpenPlain(c ShelfConfig, raw func(shard int) storage.Object, decode func(shard int, write func([]byte) error) error) *Plain {
	if len(c.Shards)+s.plainObjects() > s.config.MaxFiles/2 {
		return nil
	}
	p := &Plain{s: s, decode: decode, objects: map[int]storage.Object{}, shards: map[storage.Object]*plainShard{}, waiting: map[int][]*storage.Read{}}
	for _, shard := range c.Shards {
		id, ok := c.Identify(shard)
		if !ok || !p.add(shard, id, raw(shard), c.DecodedBytes(shard)) {
			_ = p.Close()
			return nil
		}
	}
	return p
}

// add adds a shard, and reports whether it is complete.
func (p *Plain) add(shard int, id Identity, raw storage.Object, decodedBytes int64) bool {
	s := p.s
	o := storage.Object{Path: raw.Path + " (decoded)", SizeBytes: decodedBytes, Version: raw.Version}
	x := &plainShard{of: p, shard: shard, id: id, key: keyOf(id, decodedBytes)}
	for n := 2; ; n++ {
		if _, taken := s.plain.LoadOrStore(o, x); !taken {
			break
		}
		o.Path = fmt.Sprintf("%s (decoded, %d)", raw.Path, n) // the other is another Plain's, which may be closed first
	}
	p.objects[shard], p.shards[o] = o, x
	if x.held = s.hold(o); x.held == nil {
		return false
	}
	files := s.opened(x.held, false)
	if files == nil {
		return false
	}
	k := &keptShard{a: &keptArena{s: s}, w: x.held.wanted, files: files}
	d := &Decoded{ground: k, sizeBytes: decodedBytes}
	there, err := d.Look()
	return err == nil && there == decodedBytes
}

// Object returns the object that presents a shard.
func (p *Plain) Object(shard int) storage.Object { return p.objects[shard] }

// Close ends the use of the objects. No read may be in progress. It is idempotent.
func (p *Plain) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ended.Wait()
	for o, x := range p.shards {
		p.s.plain.CompareAndDelete(o, x)
		if x.held != nil {
			p.s.release(x.held)
		}
	}
	p.shards = nil
	return nil
}

// Submit implements storage.Storage.
func (p *Plain) Submit(reads []*storage.Read) { p.s.Submit(reads) }

// List implements storage.Storage: it visits nothing, because the objects were listed before they
// were decoded.
func (p *Plain) List(context.Context, func(path string, isDir bool) bool, func(storage.Object) error) error {
	return nil
}

// Stat implements storage.Storage.
func (p *Plain) Stat(_ context.Context, path string) (storage.Object, error) {
	for o := range p.shards {
		if o.Path == path {
			return o, nil
		}
	}
	return storage.Object{}, &storage.Error{Object: path, Err: fs.ErrNotExist}
}

// Caps implements storage.Storage: objects are mapped like others of the cache.
func (p *Plain) Caps() storage.Caps { return storage.Caps{Mapper: p.s.Caps().Mapper} }

// identify returns the identity of an object, also of a decoded one.
func (s *Storage) identify(o storage.Object) (Identity, bool) {
	if x, ok := s.plain.Load(o); ok {
		return x.(*plainShard).id, true
	}
	return s.config.Identify(o)
}

// plainKeys returns the keys of the objects of all Plains, which have to stay. A key that several
// Plains have is in it once.
func (s *Storage) plainKeys() map[key]bool {
	keys := map[key]bool{}
	s.plain.Range(func(_, x any) bool {
		keys[x.(*plainShard).key] = true
		return true
	})
	return keys
}

// plainObjects returns the number of objects that Plains have open.
func (s *Storage) plainObjects() (n int) {
	s.plain.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// submitBelow submits reads to the storage below, or to the Plain of their object.
func (s *Storage) submitBelow(reads ...*storage.Read) {
	below := reads[:0:0]
	for _, r := range reads {
		if x, ok := s.plain.Load(r.Object); ok {
			x.(*plainShard).submit(r)
			continue
		}
		below = append(below, r)
	}
	if len(below) > 0 {
		s.below.Submit(below)
	}
}

// submit decodes a shard for a read of what the cache has lost of it.
func (x *plainShard) submit(r *storage.Read) {
	p := x.of
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := len(p.waiting[x.shard]) > 0
	p.waiting[x.shard] = append(p.waiting[x.shard], r)
	if !begun {
		p.ended.Go(func() { p.bring(x.shard) })
	}
}

// bring decodes a shard for the reads that wait for it. It decodes all of it, because only then it
// is known to be valid.
func (p *Plain) bring(shard int) {
	p.pass.Lock()
	defer p.pass.Unlock()
	p.mu.Lock()
	var reads []*storage.Read
	for _, r := range p.waiting[shard] {
		if r.Wanted == nil || r.Wanted() {
			reads = append(reads, r)
		} else {
			defer r.Done(storage.ErrUnwanted)
		}
	}
	delete(p.waiting, shard)
	closed := p.closed
	p.mu.Unlock()
	err := errClosed
	if !closed {
		at := int64(0)
		err = p.decode(shard, func(block []byte) error {
			for _, r := range reads {
				begin, end := max(r.OffsetBytes, at), min(r.OffsetBytes+int64(len(r.Buf)), at+int64(len(block)))
				if begin < end {
					copy(r.Buf[begin-r.OffsetBytes:], block[begin-at:end-at])
				}
			}
			at += int64(len(block))
			return nil
		})
		if size := p.objects[shard].SizeBytes; err == nil && at != size {
			err = fmt.Errorf("it decodes to %d bytes, not %d: %w", at, size, storage.ErrChanged)
		}
	}
	for _, r := range reads {
		if err == nil {
			r.Done(nil)
			continue
		}
		of, is := errors.AsType[*storage.Error](err)
		if !is {
			of = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
		}
		r.Done(of)
	}
}
