package verify

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// forward reads objects front to back, one after the other, with several reads in flight ahead of
// the requested bytes; near the end of an object, those of the next one. It is an io.ReaderAt of
// the object that was opened last, for one goroutine. A request further ahead reads everything up
// to there, so no byte is skipped; a step back costs the reads in flight. It owns its memory, parts
// of partBytes each.
type forward struct {
	ctx     context.Context
	storage storage.Storage
	memory  []byte
	parts   []part
	part    int64 // size in bytes
	head    int   // index of the part with the earliest bytes
	held    int   // number of parts that hold bytes or wait for them: those of object, then those of then
	reached int64 // bytes of object before this offset were reported to arrived
	failure error // error of the storage for object, sticky
	arrived func(n int64)

	object storage.Object
	next   int64                         // offset of the next read, in then if onThen
	then   storage.Object                // the object after object
	more   func() (storage.Object, bool) // returns then; nil once it was called
	known  bool                          // then is known
	onThen bool                          // all of object is held or in flight
}

// part is one read: in flight until done has received, once.
type part struct {
	read    storage.Read
	done    chan error
	waiting bool
	then    bool // it belongs to forward.then
	at      int64
	n       int
	err     error
}

// newForward returns a reader with depth reads of partBytes in flight. arrived is called with the
// number of bytes when they are read or passed for the first time.
func newForward(ctx context.Context, s storage.Storage, partBytes int64, depth int, arrived func(n int64)) (*forward, error) {
	memory, err := uring.Map(int(partBytes) * depth)
	if err != nil {
		return nil, err
	}
	f := &forward{ctx: ctx, storage: s, memory: memory, parts: make([]part, depth), part: partBytes, arrived: arrived}
	for i := range f.parts {
		p := &f.parts[i]
		p.done = make(chan error, 1)
		p.read.Done = func(err error) { p.done <- err }
	}
	return f, nil
}

// open switches to another object, from its start. Nothing is read before ReadAt, except for what
// has been read ahead. When all reads of the object are in flight, more is called for the object
// that will be opened next, if any; more may be nil.
func (f *forward) open(o storage.Object, more func() (storage.Object, bool)) error {
	if !f.known || o != f.then {
		if err := f.jump(0); err != nil {
			return err
		}
	}
	for f.held > 0 && !f.parts[f.head].then {
		if err := f.await(&f.parts[f.head]); err != nil {
			return err
		}
		f.drop()
	}
	for i := range f.held {
		f.parts[(f.head+i)%len(f.parts)].then = false
	}
	if !f.onThen {
		f.next = 0
	}
	f.object, f.reached, f.failure = o, 0, nil
	f.more, f.known, f.onThen = more, false, false
	return nil
}

// jump drops all parts and continues at an offset of the object.
func (f *forward) jump(to int64) error {
	for f.held > 0 {
		if err := f.await(&f.parts[f.head]); err != nil {
			return err
		}
		f.drop()
	}
	f.next, f.onThen = to-to%f.part, false
	return nil
}

// await waits for a part's read. An error is the context's: the storage may still write to the part
// then.
func (f *forward) await(p *part) error {
	if !p.waiting {
		return nil
	}
	select {
	case p.err = <-p.done:
		p.waiting = false
		return nil
	case <-f.ctx.Done():
		return f.ctx.Err()
	}
}

// drop releases the earliest part.
func (f *forward) drop() {
	f.head = (f.head + 1) % len(f.parts)
	f.held--
}

// ahead issues reads until all parts are used.
func (f *forward) ahead() {
	var reads []*storage.Read
	for f.held < len(f.parts) {
		o := f.object
		if f.onThen {
			o = f.then
		}
		if f.next >= o.SizeBytes {
			if f.onThen || !f.turn() {
				break
			}
			continue
		}
		i := (f.head + f.held) % len(f.parts)
		p := &f.parts[i]
		p.at, p.n, p.then = f.next, int(min(f.part, o.SizeBytes-f.next)), f.onThen
		p.read.Object, p.read.OffsetBytes = o, p.at
		p.read.Buf = f.memory[int64(i)*f.part:][:p.n]
		p.waiting = true
		reads = append(reads, &p.read)
		f.held++
		f.next += int64(p.n)
	}
	if len(reads) > 0 {
		f.storage.Submit(reads)
	}
}

// turn makes the following reads those of the next object, if there is one. It reports whether
// there is.
func (f *forward) turn() bool {
	if f.more != nil {
		f.then, f.known = f.more()
		f.more = nil
	}
	if f.known {
		f.onThen, f.next = true, 0
	}
	return f.known
}

// ReadAt fills p, or as much as the object has, with io.EOF.
func (f *forward) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: read at offset %d", f.object.Path, off)
	}
	n := 0
	for n < len(p) && off+int64(n) < f.object.SizeBytes {
		b, err := f.at(off + int64(n))
		if err != nil {
			return n, err
		}
		n += copy(p[n:], b)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// at returns the available bytes at off, at least one.
func (f *forward) at(off int64) ([]byte, error) {
	if f.failure != nil {
		return nil, f.failure
	}
	p := &f.parts[f.head]
	mine := f.held > 0 && !p.then // the earliest part belongs to the object
	if mine && off < p.at || !mine && (f.onThen || off < f.next) {
		if err := f.jump(off); err != nil {
			return nil, err
		}
	}
	for {
		f.ahead()
		p := &f.parts[f.head]
		if err := f.await(p); err != nil {
			return nil, err
		}
		if f.failure = p.err; f.failure != nil {
			return nil, f.failure
		}
		if end := p.at + int64(p.n); end > f.reached {
			f.arrived(end - f.reached)
			f.reached = end
		}
		if off < p.at+int64(p.n) {
			return p.read.Buf[off-p.at:], nil
		}
		f.drop()
	}
}

func (f *forward) failed() error { return f.failure }

// rest reads the object to its end.
func (f *forward) rest() error {
	if f.reached == f.object.SizeBytes {
		return nil
	}
	_, err := f.at(f.object.SizeBytes - 1)
	return err
}

// Holds implements format.ResidentReaderAt: all bytes are read, whether they are needed or not.
func (f *forward) Holds(int64, int64) bool { return true }

// ReadResident implements format.ResidentReaderAt. If it returns false, ReadAt returns the error.
func (f *forward) ReadResident(p []byte, off int64) bool {
	n, err := f.ReadAt(p, off)
	return err == nil && n == len(p)
}

// close frees the memory once no read is in flight. If the context has ended, a read may never
// return: then the memory is leaked.
func (f *forward) close() {
	if f.jump(0) == nil {
		_ = uring.Unmap(f.memory) // it only fails for memory that Map did not return
	}
}

// reading reads objects front to back, one after the other. It is an io.ReaderAt of the object that
// was opened last, for one goroutine. Skipped bytes are read too.
type reading interface {
	io.ReaderAt
	// open switches to another object. more may be called for the object after it, if any.
	open(o storage.Object, more func() (storage.Object, bool)) error
	// rest reads the object to its end.
	rest() error
	// failed returns the storage's error for the object, or nil.
	failed() error
	close()
}

var (
	_ reading                  = (*forward)(nil)
	_ reading                  = (*streamed)(nil)
	_ format.PortionedReaderAt = (*streamed)(nil)
)

// streamed is a reading from a storage that has streams: each object is one request.
type streamed struct {
	ctx      context.Context
	from     storage.Storage
	pass     storage.Pass
	arrived  func(n int64) // called with the number of bytes read for the first time
	object   storage.Object
	reader   *storage.Reader // of object; nil before the first
	reached  int64           // bytes of object before this offset were reported to arrived
	failure  error           // sticky
	leftover []byte          // buffer for rest
}

func newStreamed(ctx context.Context, from storage.Storage, p storage.Pass, arrived func(n int64)) *streamed {
	return &streamed{ctx: ctx, from: from, pass: p, arrived: arrived}
}

func (s *streamed) open(o storage.Object, _ func() (storage.Object, bool)) error {
	s.close()
	s.object, s.reached, s.failure = o, 0, nil
	s.reader = storage.NewStream(s.ctx, s.from, o, math.MaxInt64, 0)
	return s.ctx.Err()
}

// ReadAt fills p, or as much as the object has, with io.EOF.
func (s *streamed) ReadAt(p []byte, off int64) (int, error) {
	if s.failure != nil {
		return 0, s.failure
	}
	n, err := s.reader.ReadAt(p, off)
	if end := off + int64(n); n > 0 && end > s.reached {
		s.arrived(end - s.reached)
		s.reached = end
	}
	if err != nil && err != io.EOF && s.ctx.Err() == nil {
		s.failure = err
	}
	return n, err
}

// Portions implements format.PortionedReaderAt: everything is read.
func (s *streamed) Portions() format.Portions {
	return format.Portions{ReadBytes: int(s.pass.StreamBytes), SkipBytes: math.MaxInt64, HeaderBytes: s.pass.HeaderBytes}
}

func (s *streamed) rest() error {
	if s.reached == s.object.SizeBytes {
		return nil
	}
	if s.leftover == nil {
		s.leftover = make([]byte, s.pass.StreamBytes)
	}
	n := min(int64(len(s.leftover)), s.object.SizeBytes)
	_, err := s.ReadAt(s.leftover[:n], s.object.SizeBytes-n)
	return err
}

func (s *streamed) failed() error { return s.failure }

func (s *streamed) close() {
	if s.reader != nil {
		s.reader.Close()
	}
}

// tee wraps a shard's codec to observe every decoded byte. An uncompressed shard is treated as a
// single member, so that format.Scan skips no byte.
type tee struct {
	inner format.Codec // nil for an uncompressed shard
	// begin is called at the start of each pass over the shard, look with the bytes that follow, in
	// order.
	begin func()
	look  func(decoded []byte)
}

var _ format.Codec = tee{}

func (t tee) Name() string {
	if t.inner == nil {
		return "none"
	}
	return t.inner.Name()
}

func (t tee) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	t.begin()
	var d format.Decoder = &whole{raw: raw, offset: rawOffset}
	if t.inner != nil {
		var err error
		if d, err = t.inner.NewDecoder(raw, rawOffset); err != nil {
			return nil, err
		}
	}
	return watched{d, t.look}, nil
}

// watched is a decoder whose output is observed.
type watched struct {
	format.Decoder
	look func(decoded []byte)
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Decoder.Read(p)
	w.look(p[:n])
	return n, err
}

// whole presents a file as its only member.
type whole struct {
	raw    io.Reader
	offset int64
	begun  bool
}

func (w *whole) Next() (int64, error) {
	if w.begun {
		return 0, io.EOF
	}
	w.begun = true
	return w.offset, nil
}

func (w *whole) Read(p []byte) (int, error) { return w.raw.Read(p) }
func (w *whole) MemoryBytes() int64         { return 0 }
func (w *whole) Close()                     {}
