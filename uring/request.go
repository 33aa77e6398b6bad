package uring

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// errEmptyBuffer completes requests that ask for nothing: a programming error of the submitter,
// reported like any other error so that its reader ends.
var errEmptyBuffer = errors.New("a read request needs a buffer")

// maxAgain bounds how often one request is retried after EINTR or EAGAIN. A regular file returns
// neither more than once in a row; a descriptor in non-blocking mode with nothing to read would
// return it forever.
const maxAgain = 64

// check returns the error of a request that must not reach the kernel. A negative offset would mean
// "the file's position" to io_uring.
func (r *Request) check() error {
	switch {
	case len(r.Buf) == 0:
		return errEmptyBuffer
	case r.OffsetBytes < 0:
		return unix.EINVAL
	}
	return nil
}

// begin must be called before a request is read. It returns the error of a request that must not be
// read.
func (r *Request) begin() error {
	if r.Wanted != nil && !r.Wanted() {
		return ErrUnwanted
	}
	return r.check()
}

// fd is the descriptor for ordinary reads.
func (r *Request) fd() int {
	if r.File != nil {
		return r.File.fd
	}
	return r.FD
}

// pread fills buf from off on, up to the end of the file. It blocks.
func pread(fd int, buf []byte, off int64) (int, error) {
	n, again := 0, 0
	for n < len(buf) {
		got, err := unix.Pread(fd, buf[n:], off+int64(n))
		switch {
		case (err == unix.EINTR || err == unix.EAGAIN) && again < maxAgain:
			again++
		case err != nil:
			return n, err
		case got == 0:
			return n, nil
		default:
			n, again = n+got, 0
		}
	}
	return n, nil
}

// preadOnce reads once, however much that returns.
func preadOnce(fd int, buf []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, buf, off)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

// endsBefore reports whether a file ends at or before off.
func endsBefore(fd int, off int64) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Size <= off
}

// counters are an engine's numbers, for Status.
type counters struct {
	inFlight, inFlightBytes  atomic.Int64
	reads, readBytes, errors atomic.Uint64
	unwanted                 atomic.Uint64
	cached, direct, remote   atomic.Uint64
	refusals                 [numRefusals]atomic.Uint64 // Files refused by this engine
	registration             atomic.Pointer[registration]
}

// registration is the result of registering memory with the ring.
type registration struct{ err error }

// refuse stops direct reads of a File, and counts it once.
func (c *counters) refuse(f *File, why refusal) {
	if f.refused.CompareAndSwap(0, uint32(why)) {
		c.refusals[why].Add(1)
	}
}

func (c *counters) submitted(requests []*Request) {
	var bytes int64
	for _, r := range requests {
		bytes += int64(len(r.Buf))
	}
	c.inFlight.Add(int64(len(requests)))
	c.inFlightBytes.Add(bytes)
}

// end verifies and completes a request that was read.
func (c *counters) end(r *Request, n int, err error) {
	if r.File != nil && r.File.verify != nil {
		if changed := r.File.verify(); changed != nil {
			err = changed
		}
	}
	c.complete(r, n, err)
}

// complete counts r as done and calls its Done. When it returns, r and its buffer no longer belong
// to the engine.
func (c *counters) complete(r *Request, n int, err error) {
	c.inFlight.Add(-1)
	c.inFlightBytes.Add(-int64(len(r.Buf)))
	c.readBytes.Add(uint64(n))
	switch err {
	case nil:
		c.reads.Add(1)
	case ErrUnwanted:
		c.unwanted.Add(1)
	default:
		c.errors.Add(1)
	}
	r.Done(n, err)
}

func (c *counters) status(engine, reason string) Status {
	s := Status{
		Engine:        engine,
		Reason:        reason,
		InFlight:      c.inFlight.Load(),
		InFlightBytes: c.inFlightBytes.Load(),
		Reads:         c.reads.Load(),
		ReadBytes:     c.readBytes.Load(),
		Errors:        c.errors.Load(),
		Unwanted:      c.unwanted.Load(),
		CachedReads:   c.cached.Load(),
		DirectReads:   c.direct.Load(),
		RemoteReads:   c.remote.Load(),
	}
	for why := range c.refusals {
		if n := c.refusals[why].Load(); n > 0 {
			if s.NotDirect == nil {
				s.NotDirect = make(map[string]uint64)
			}
			s.NotDirect[refusal(why).String()] = n
		}
	}
	if r := c.registration.Load(); r != nil {
		if s.Registered = r.err == nil; !s.Registered {
			s.NotRegistered = r.err.Error()
		}
	}
	return s
}

// refuse completes requests that came after Close, from another goroutine: Done is never called
// from within Submit, whose caller may hold locks that Done takes.
func refuse(requests []*Request) {
	requests = append([]*Request(nil), requests...) // the slice belongs to the caller again when Submit returns
	go func() {
		for _, r := range requests {
			r.Done(0, ErrClosed)
		}
	}()
}

// ending are requests that have been read by one goroutine, and whose files are still to be
// verified. One verification of a file serves all of its reads that ended before: it costs a
// quarter of a small read.
type ending struct {
	reads []ended
	bytes int
}

type ended struct {
	request *Request
	n       int
	err     error
}

func (e *ending) add(r *Request, n int, err error) {
	e.reads = append(e.reads, ended{r, n, err})
	e.bytes += n
}

// complete verifies and completes all of them.
func (e *ending) complete(c *counters) {
	// A File stays in use until the last of its requests is done, so last remains valid.
	var last *File
	var changed error
	for i, d := range e.reads {
		e.reads[i] = ended{}
		if f := d.request.File; f != nil && f.verify != nil {
			if f != last {
				last, changed = f, f.verify()
			}
			if changed != nil {
				d.err = changed
			}
		}
		c.complete(d.request, d.n, d.err)
	}
	e.reads, e.bytes = e.reads[:0], 0
}

// job is a request on its way through an engine.
type job struct {
	request *Request
	n       int  // bytes read so far
	direct  bool // the rest is read without the page cache
}

// off is where the rest begins in the file.
func (j *job) off() int64 { return j.request.OffsetBytes + int64(j.n) }

// rest is the memory that is still to be filled.
func (j *job) rest() []byte { return j.request.Buf[j.n:] }
