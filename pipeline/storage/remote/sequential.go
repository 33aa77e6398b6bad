package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// OpenSequential implements storage.Caps: one request for the rest of an object, made at the
// first Read. Streams use no slots: a stream that is not being read would block other reads.
func (s *Storage) OpenSequential(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
	st := &stream{s: s, object: o, at: off}
	var ok bool
	st.validator, st.whole, ok = s.listed.get(o)
	switch {
	case !ok:
		return nil, st.failure(errUnlisted)
	case off < 0 || off > o.SizeBytes:
		return nil, st.failure(fmt.Errorf("the object has %d bytes", o.SizeBytes))
	}
	st.ctx, st.cancel = context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		st.cancel(nil)
		return nil, st.failure(storage.ErrClosed)
	}
	s.streams[st] = struct{}{}
	return st, nil
}

// stream reads an object forward.
type stream struct {
	s         *Storage
	ctx       context.Context // for the stream, which is one running request
	cancel    context.CancelCauseFunc
	object    storage.Object
	validator Validator
	whole     bool

	mu      sync.Mutex // held by a Read, or by Close after it
	at      int64
	body    io.ReadCloser // nil: not open
	watch   *watch        // for body
	asked   time.Time     // when body was requested; zero: its first byte has arrived
	since   time.Time     // time of the last byte, or of the first attempt
	history history
	tries   atomic.Int32 // failed attempts since the last byte; like late, as in read
	late    atomic.Bool
	err     error // returned by all further Reads
}

var _ io.ReadCloser = (*stream)(nil)

func (st *stream) failure(err error) error {
	return &storage.Error{Object: st.object.Path, OffsetBytes: st.at, SizeBytes: max(st.object.SizeBytes-st.at, 0), Err: err}
}

// Read implements io.Reader.
func (st *stream) Read(p []byte) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(p) == 0 {
		return 0, st.err
	}
	for st.err == nil {
		if st.at == st.object.SizeBytes {
			st.err = st.ended()
			break
		}
		f := st.open()
		n := 0
		if f.kind == kindGood {
			if n, f = st.read(p); n > 0 {
				return n, nil
			}
		}
		st.drop()
		if f.doubtful {
			f = st.s.reconsider(st.ctx, st.object, st.validator, f)
			if v, _, ok := st.s.listed.get(st.object); ok {
				st.validator = v
			}
		}
		st.err = st.again(f)
	}
	return 0, st.err
}

// open makes the request unless one is open.
func (st *stream) open() finding {
	if st.body != nil {
		return finding{}
	}
	q := question{begin: st.at, end: st.object.SizeBytes, size: st.object.SizeBytes, validator: st.validator, plain: st.at == 0, open: true}
	q.whole = q.size <= wholeBytes && (st.whole || st.history.noRange > 0)
	st.asked = time.Now()
	if st.since.IsZero() {
		st.since = st.asked
	}
	ctx, w := watching(st.ctx, st.s.config, st.silent())
	a, f := st.s.ask(ctx, st.object.Path, q)
	if f.kind != kindGood {
		w.end()
		return f
	}
	st.body, st.watch = a.Body, w
	if _, err := io.CopyN(io.Discard, &watched{body: a.Body, watch: w, first: func() {}}, f.skip); err != nil {
		err = st.s.cause(ctx, err)
		st.drop()
		return broken(0, int(f.skip), err)
	}
	w.pause()
	return finding{}
}

// waitedFor reports that a reader has waited for the next bytes since then.
func (st *stream) waitedFor(since time.Time, why error) {
	if st.s.troubled(waits{st.object.Path, int(st.tries.Load()), time.Since(since), st.s.config.ReadTimeout}, why) {
		st.late.Store(true)
	}
}

// silent returns the function to call if nothing arrives.
func (st *stream) silent() func() {
	since, asked := st.since, st.asked
	return func() { st.waitedFor(since, &silenceError{time.Since(asked)}) }
}

// read reads the next bytes of the body.
func (st *stream) read(p []byte) (int, finding) {
	st.watch.resume()
	n, err := st.body.Read(p[:min(int64(len(p)), st.object.SizeBytes-st.at)])
	st.watch.progress(n)
	st.watch.pause()
	st.s.stats.bytes.Add(uint64(n))
	if n > 0 {
		now := time.Now()
		if !st.asked.IsZero() {
			st.s.stats.firstByte(wholeBytes+1, now.Sub(st.asked))
		}
		st.s.answered(st.late.Load())
		st.late.Store(false)
		st.tries.Store(0)
		st.at, st.since, st.asked, st.history.failed = st.at+int64(n), now, time.Time{}, 0
		return n, finding{}
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	f := broken(0, len(p), err)
	if st.watch.why() != nil {
		f.err = st.watch.why()
	}
	return 0, f
}

// again waits before the next request, or returns the error that ends the stream.
func (st *stream) again(f finding) error {
	if st.ctx.Err() != nil {
		return st.canceled()
	}
	next := st.history.next(f, time.Since(st.since), st.s.config.ReadTimeout, rand.Float64())
	if next.err != nil {
		err := st.s.placed(next.err)
		st.s.stats.failed(st.object.Path, err)
		return st.failure(err)
	}
	st.s.stats.retried(st.object.Path, f)
	st.tries.Add(1)
	st.s.throttled(f)
	if next.refresh {
		st.s.refresh(st.ctx, st.object.Path)
	}
	since := st.since
	if telling(st.ctx, next.wait, time.Since(since), func() { st.waitedFor(since, f.err) }) != nil {
		return st.canceled()
	}
	return nil
}

// canceled returns the error of a stream that was closed, or whose context has ended.
func (st *stream) canceled() error {
	if err := context.Cause(st.ctx); errors.Is(err, storage.ErrClosed) {
		return st.failure(err)
	}
	return st.ctx.Err()
}

// ended checks whether the body ends where the object does.
func (st *stream) ended() error {
	if st.body == nil {
		return io.EOF
	}
	defer st.drop()
	st.watch.resume()
	var more [1]byte
	if n, _ := io.ReadFull(st.body, more[:]); n > 0 {
		return st.failure(st.s.placed(wrong("the answer has more than the %d bytes of the object", st.object.SizeBytes).err))
	}
	return io.EOF
}

// drop ends the request.
func (st *stream) drop() {
	if st.body != nil {
		st.watch.end()
		_ = st.body.Close()
		st.body, st.watch = nil, nil
	}
}

// Close implements io.Closer. It ends a pending Read, and is idempotent.
func (st *stream) Close() error {
	st.end(storage.ErrClosed)
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	delete(st.s.streams, st)
	return nil
}

func (st *stream) end(err error) {
	st.cancel(err)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.drop()
	if st.err == nil || st.err == io.EOF {
		st.err = st.failure(err)
	}
}
