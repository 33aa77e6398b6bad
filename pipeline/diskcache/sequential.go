package diskcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// blockBytes is how much a stream reads at a time. A single hole in that many cached bytes is read
// as a range. A stream of the storage below continues over fewer cached bytes than that. (At 85
// MB/s and 25 ms a request, a request costs as much as 2 MiB.)
const blockBytes = 1 << 20

// OpenSequential implements storage.Caps. Cached pages are read from the disk. The others come from
// one stream of the storage below, as long as that is cheaper than ranges, and are written to the
// cache if there is permanent room for them. If the storage below has no streams, they are read as
// ranges.
func (s *Storage) OpenSequential(ctx context.Context, listed storage.Object, off int64) (io.ReadCloser, error) {
	below := s.caps.OpenSequential
	if off < 0 || off > listed.SizeBytes {
		return nil, &storage.Error{Object: listed.Path, OffsetBytes: off, Err: fmt.Errorf("the object has %d bytes", listed.SizeBytes)}
	}
	if !s.begin(1) {
		return nil, &storage.Error{Object: listed.Path, OffsetBytes: off, SizeBytes: listed.SizeBytes - off, Err: fs.ErrClosed}
	}
	o := s.hold(listed)
	if below != nil && (o == nil || s.health.off.Load()) {
		if o != nil {
			s.release(o)
		}
		s.end()
		return below(ctx, listed, off)
	}
	st := &stream{s: s, below: below, object: o, listed: listed, parent: ctx, at: off}
	st.ctx, st.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		st.cancel() // Close has ended the streams already: this one reads nothing
	}
	s.streams[st] = struct{}{}
	return st, nil
}

// stream is an object that is being read from front to back.
type stream struct {
	s           *Storage
	below       func(context.Context, storage.Object, int64) (io.ReadCloser, error) // nil: there are no streams below
	object      *object                                                             // nil: it is not cached
	listed      storage.Object
	parent, ctx context.Context // the caller's, and the stream's, which Close ends
	cancel      context.CancelFunc

	mu     sync.Mutex // held by Read, or by Close after it
	at     int64
	buf    []byte
	unread []byte        // part of buf: the bytes from at on
	body   io.ReadCloser // of the storage below; nil: none is open
	bodyAt int64         // its position
	err    error         // of all Reads from now on
	ended  bool          // Close was called
}

// Read implements io.Reader.
func (st *stream) Read(p []byte) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.unread) == 0 && st.err == nil {
		if st.at == st.listed.SizeBytes {
			st.err = io.EOF
		} else if err := st.next(); err != nil {
			st.err = st.failure(err)
			st.buf = nil // it may still be written to
		}
	}
	if len(st.unread) == 0 {
		return 0, st.err
	}
	n := copy(p, st.unread)
	st.unread, st.at = st.unread[n:], st.at+int64(n)
	return n, nil
}

func (st *stream) failure(err error) error {
	if st.parent.Err() != nil {
		return st.parent.Err()
	}
	if st.ctx.Err() != nil {
		err = fs.ErrClosed
	}
	var of *storage.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return &storage.Error{Object: st.listed.Path, OffsetBytes: st.at, SizeBytes: st.listed.SizeBytes - st.at, Err: err}
}

// next reads the pages from at on.
func (st *stream) next() error {
	if st.buf == nil {
		st.buf = make([]byte, blockBytes)
	}
	pages := runOf(st.at, min(blockBytes-st.at%pageBytes, st.listed.SizeBytes-st.at))
	first, here, holes := st.look(pages)
	switch {
	case st.below == nil, st.body == nil && !here && holes == 1 && first.end < pages.end:
		return st.read(pages) // including cached pages that follow
	case here && (st.body == nil || first == pages):
		st.drop()
		return st.read(first)
	case here: // a missing page follows soon
		return st.pass(first)
	case st.body == nil && pages.end == pagesOf(st.listed.SizeBytes):
		return st.read(pages) // it is all that is left
	}
	return st.pass(first)
}

// look returns the first pages of a run that are all cached, or all missing, and the number of
// separate holes in the run.
func (st *stream) look(pages run) (first run, here bool, holes int) {
	if st.object == nil {
		return pages, false, 1
	}
	files := st.s.opened(st.object, false)
	if files == nil {
		return pages, false, 1
	}
	sums := make([]byte, pages.pages()*sumBytes)
	if _, err := st.s.dir.disk.read(files.sums.FD(), sums, sumsAt(pages.begin)); err != nil {
		st.s.failed("read sums of "+st.listed.Path, err)
		return pages, false, 1
	}
	for r, is := range alike(sums, pages.begin) {
		if r.begin == pages.begin {
			first, here = r, is
		}
		if !is {
			holes++
		}
	}
	return first, here, holes
}

// take makes bytes of pages in buf the next ones to return.
func (st *stream) take(pages run, n int64) {
	st.unread = st.buf[st.at-pages.begin*pageBytes : n]
}

// sizeOf returns how many bytes the object has in pages.
func (st *stream) sizeOf(pages run) int64 {
	return min(pages.bytes(), st.listed.SizeBytes-pages.begin*pageBytes)
}

// read reads pages as a range.
func (st *stream) read(pages run) error {
	n := st.sizeOf(pages)
	if err := storage.ReadAt(st.ctx, st.s, st.listed, st.buf[:n], pages.begin*pageBytes); err != nil {
		return err
	}
	st.take(pages, n)
	return nil
}

// pass reads pages from the stream below, and writes those that are missing.
func (st *stream) pass(pages run) error {
	if st.body != nil && st.bodyAt != pages.begin*pageBytes {
		st.drop()
	}
	if st.body == nil {
		st.s.counts.reads.Add(1)
		body, err := st.below(st.ctx, st.listed, pages.begin*pageBytes)
		if err != nil {
			return err
		}
		st.body, st.bodyAt = body, pages.begin*pageBytes
	}
	n := st.sizeOf(pages)
	if _, err := io.ReadFull(st.body, st.buf[:n]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	st.bodyAt += n
	if st.bodyAt == st.listed.SizeBytes {
		// Reading once more shows whether the body ends with the object.
		var more [1]byte
		if n, err := io.ReadFull(st.body, more[:]); n > 0 || err != io.EOF {
			if n > 0 {
				err = errors.New("the answer has more bytes than the object")
			}
			return err
		}
	}
	st.s.missed(pages.pages())
	clear(st.buf[n:pages.bytes()])
	st.keep(pages)
	st.take(pages, n)
	return nil
}

// keep writes pages that have arrived, if there is permanent room for them.
func (st *stream) keep(pages run) {
	s, o := st.s, st.object
	if o == nil || !s.health.writes() {
		return
	}
	place := s.room.take(pages.bytes(), true)
	if place == nowhere {
		return
	}
	kept, _ := s.write(o, pages, st.buf[:pages.bytes()], place)
	s.room.put(place, pages.bytes(), kept)
	s.room.grow(sumBlocks(kept))
	o.mu.Lock()
	o.landed.Add(1)
	o.mu.Unlock()
}

// drop closes the stream below.
func (st *stream) drop() {
	if st.body != nil {
		_ = st.body.Close()
		st.body = nil
	}
}

// Close implements io.Closer. It ends a pending Read, and is idempotent.
func (st *stream) Close() error {
	st.cancel()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return nil
	}
	st.ended = true
	st.drop()
	st.unread = nil
	if st.err == nil || st.err == io.EOF {
		st.err = st.failure(fs.ErrClosed)
	}
	s := st.s
	s.mu.Lock()
	delete(s.streams, st)
	s.mu.Unlock()
	if st.object != nil {
		s.release(st.object)
	}
	s.end()
	return nil
}

// endStreams ends the open streams.
func (s *Storage) endStreams() {
	s.mu.Lock()
	var open []*stream
	for st := range s.streams {
		open = append(open, st)
	}
	s.mu.Unlock()
	for _, st := range open {
		_ = st.Close()
	}
}
