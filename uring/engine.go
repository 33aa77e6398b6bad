// Package uring reads files: through io_uring if the kernel permits it, otherwise with pread on a
// bounded pool of goroutines. It knows nothing of datasets. Pool is for other system calls that may
// hang, and Arena for memory that is read into.
//
//	             ┌─ in the page cache, or alone ──► copied by goroutines (RWF_NOWAIT) ─┐
//	Submit ──────┤                                                                     ├──► Done
//	             ├─ other local reads ──► queue ──► ring (or pread pool) ──────────────┤
//	             └─ of a Remote file ──► queue ──► pread pool ─────────────────────────┘
//
// # Engines
//
// Open returns an Engine. Submit hands over a batch of requests and does not wait for them. Each
// request's Done is called exactly once, from a goroutine of the engine. Both engines have the same
// contract and pass the same test suite: the same requests give the same bytes and the same errors.
//
// At a time the kernel has at most 127 reads and 32 MiB (or one larger read), or 32 preads. Further
// requests wait in a queue, first come, first served.
//
// A request takes one of these ways:
//
//   - Requests for Remote files are read by the pool in both engines, without asking the
//     page cache or the ring. A file that stalls delays no other file (Pool).
//   - Data in the page cache is copied by a few goroutines, at most one per core. A ring
//     would copy on one core, and several times slower. A request that is alone is read
//     by such a goroutine, too.
//   - All others go to the ring or the pool, and bypass the page cache according to the
//     File's policy. Such direct reads need no alignment of offset, size or memory: the
//     engine has aligned blocks (34 MiB, mapped at the first such read, and registered
//     with the ring if the limit on locked memory permits it). But copying out of the
//     blocks costs more CPU than all the rest. Reads of any size from 128 KiB on go
//     straight into the caller's memory, if they begin at a multiple of 4096 bytes and the
//     memory was returned by Map.
//
// ReadNow reads at once, on the caller's goroutine, if the data is in the page cache.
//
// # Memory
//
// Map returns page-aligned memory outside the Go heap, in 2 MiB pages if the kernel has them:
// direct reads of 128 KiB and more into such pages were measured to be twice as fast. The kernel
// writes to a request's buffer until the read completes, even if the submitter is gone. So an
// engine keeps every request in a table until then. An Arena lends such memory, within a bound, and
// reuses what is given back.
package uring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Request is one read of an open file.
//
// Buf must not be empty. It belongs to the engine from Submit until Done is called, and FD must
// stay open that long.
//
// Done gets the number of bytes read and an error. n < len(Buf) with a nil error means that the
// file ends there; with an error, n bytes were read before it. Errors are syscall.Errno values
// without text around them, or the error of the File's verify. Short reads, EINTR and EAGAIN are
// handled inside and never reach Done. Done is called from a goroutine of the engine. It must not
// block and must not call Close; it may call Submit.
//
// Wanted, if set, is called before the kernel gets the read, perhaps more than once, on the same
// goroutines as Done. Once it returns false it is not called again: Done gets ErrUnwanted, and
// nothing more is read. So a submitter can cancel a request that waits in the engine's queue, but
// not one that the kernel has begun.
type Request struct {
	File        *File // nil: FD is read as a plain descriptor
	FD          int
	OffsetBytes int64
	Buf         []byte
	Wanted      func() bool // nil means always wanted
	Done        func(n int, err error)
}

// Engine reads files. Its methods may be called concurrently.
type Engine interface {
	// Submit hands requests over and returns; the caller may reuse the slice. It never waits, and
	// never calls Done itself, so it may be called from Done and under locks that Done takes. A
	// waiting request costs the engine 24 bytes besides the caller's buffer, so a bound on the
	// caller's buffers bounds everything. After Close every request completes with ErrClosed.
	Submit(requests []*Request)
	// ReadNow reads a request of a File on the caller's goroutine if the page cache holds all of
	// it. If it returns true, Buf is full, and Done is not called. If it returns false, Buf's
	// contents are undefined, the kernel may have begun to read the missing data, and the caller
	// continues with Submit. It never waits for a disk. For small reads it saves the hand-over to
	// another goroutine, which costs more than the copy.
	ReadNow(r *Request) bool
	// Status describes the engine for people and metrics.
	Status() Status
	// Close waits until all submitted requests are read, stops the engine's goroutines
	// and frees its memory. It is idempotent.
	Close() error
}

// Status is a snapshot of an engine.
type Status struct {
	Engine        string `json:"engine"`    // "uring" or "pread"
	Reason        string `json:"reason"`    // why this engine was chosen, in words; "" if it was requested
	InFlight      int64  `json:"in_flight"` // requests submitted and not done, including queued ones
	InFlightBytes int64  `json:"in_flight_bytes"`
	Reads         uint64 `json:"reads"` // requests done without an error
	ReadBytes     uint64 `json:"read_bytes"`
	Errors        uint64 `json:"errors"`   // requests done with an error, except unwanted ones
	Unwanted      uint64 `json:"unwanted"` // requests that were cancelled before they had begun
	// CachedReads counts the Reads that the page cache answered at once, DirectReads those that
	// bypassed it.
	CachedReads uint64 `json:"cached_reads"`
	DirectReads uint64 `json:"direct_reads"`
	// RemoteReads counts the Reads of files on FUSE or a network file system, which are made by
	// threads. Stuck is the number of reads by threads that have now waited for more than a second.
	RemoteReads uint64 `json:"remote_reads"`
	Stuck       int64  `json:"stuck"`
	// NotDirect has the reasons why Files that should bypass the page cache don't, with the number
	// of Files. For a temporary reason (no free descriptors) it counts reads.
	NotDirect map[string]uint64 `json:"not_direct,omitempty"`
	// Registered reports whether the memory for unaligned direct reads is registered with the ring,
	// which is tried at the first such read. NotRegistered is why it was refused; reads then cost
	// slightly more CPU.
	Registered    bool   `json:"registered"`
	NotRegistered string `json:"not_registered,omitempty"`
}

// ErrClosed completes requests that were submitted after Close.
var ErrClosed = errors.New("io engine is closed")

// ErrUnwanted completes requests that were cancelled before they had begun.
var ErrUnwanted = errors.New("the read is not wanted any more")

// Mode chooses an engine.
type Mode string

const (
	ModeAuto  Mode = "auto"  // uring if a ring can be made and read through, otherwise pread
	ModeUring Mode = "uring" // uring; an error if io_uring is not permitted
	ModePread Mode = "pread"
)

// Open starts an engine. ModeAuto makes a ring and reads through it; if that fails, it uses the
// pread engine. Status reports which engine is used and why. ModeUring fails instead.
func Open(mode Mode) (Engine, error) {
	switch mode {
	case ModePread:
		return openPread(""), nil
	case ModeUring:
		e, err := openProbed("")
		if err != nil {
			return nil, fmt.Errorf("io engine %s: %w; use %s or %s", mode, err, ModeAuto, ModePread)
		}
		return e, nil
	case ModeAuto:
		e, err := openProbed("a test read through a ring worked")
		if err != nil {
			return openPread(fmt.Sprintf("%v; reading with pread", err)), nil
		}
		return e, nil
	}
	return nil, fmt.Errorf("io engine %q is unknown: use %s, %s or %s", mode, ModeAuto, ModeUring, ModePread)
}

// openProbed starts the io_uring engine and reads through it. The error explains why io_uring can't
// be used, and the likely cause.
func openProbed(reason string) (*engine, error) {
	e, err := openUring(reason)
	if err != nil {
		return nil, explain(err)
	}
	if err := probe(e); err != nil {
		return nil, explain(errors.Join(err, e.Close()))
	}
	// The probe's reads must not be counted.
	e.reads.Store(0)
	e.readBytes.Store(0)
	return e, nil
}

// probe reads a file in memory: a kernel that emulates io_uring may support wake-ups but not files.
func probe(e *engine) error {
	const content = "lsiofs"
	fd, err := unix.MemfdCreate("lsiofs-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("probe io_uring: memfd_create: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Pwrite(fd, []byte(content), 0); err != nil {
		return fmt.Errorf("probe io_uring: write to memory file: %w", err)
	}
	type outcome struct {
		n   int
		err error
	}
	done := make(chan outcome, 1)
	buf := make([]byte, len(content)+1)
	e.Submit([]*Request{{FD: fd, Buf: buf, Done: func(n int, err error) { done <- outcome{n, err} }}})
	got := <-done
	switch {
	case got.err != nil:
		return fmt.Errorf("probe io_uring: read: %w", got.err)
	case string(buf[:got.n]) != content:
		return fmt.Errorf("probe io_uring: read %q instead of %q", buf[:got.n], content)
	}
	return nil
}

// explain adds the likely cause of an error of io_uring's system calls.
func explain(err error) error {
	const sysctl = "/proc/sys/kernel/io_uring_disabled"
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w (blocked by the container's seccomp profile?)", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if setting, readErr := os.ReadFile(sysctl); readErr == nil {
			if value := strings.TrimSpace(string(setting)); value != "0" {
				return fmt.Errorf("%w (kernel.io_uring_disabled is %s)", err, value)
			}
		}
		return fmt.Errorf("%w (blocked by the container's seccomp profile?)", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w (is the limit on locked memory too low, ulimit -l?)", err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w (is the limit on open files too low, ulimit -n?)", err)
	}
	return err
}

const (
	// lookupBatch is how many requests a looker takes at a time: a lock costs a tenth of a small
	// read, and other lookers should get a part of a burst.
	lookupBatch = 16

	// lookerBytes is the amount of work that is worth a looker of its own. Starting one takes as
	// long as copying about 16 KiB.
	lookerBytes = 128 << 10
)

// reader is what an engine reads with if a request must wait for a disk.
type reader interface {
	// submit takes jobs over; the slice belongs to the caller again afterwards. It never waits, and
	// never completes a job before it returns.
	submit(jobs []job)
	// close waits for all jobs and frees what the reader holds.
	close() error
}

// engine is both engines: requests of Files are first looked up in the page cache, by a few
// goroutines that last as long as there is something to do. What they don't find there, and all
// other requests, go to the reader.
type engine struct {
	name, reason string
	reader       reader
	threads      *preadReader // reads Remote files; may be the reader
	*counters

	mu       sync.Mutex
	waiting  queue[job]
	bytes    int            // total size of waiting
	lookers  int            // number of lookers that are not in a read that may wait
	most     int            // bound on lookers
	passing  []job          // of one Submit, for the reader: not looked up in the page cache
	remote   []job          // of one Submit, for threads
	closed   atomic.Bool    // set under mu
	looking  sync.WaitGroup // lookers
	once     sync.Once
	closeErr error
}

var _ Engine = (*engine)(nil)

func newEngine(name, reason string, c *counters, r reader, threads *preadReader) *engine {
	return &engine{name: name, reason: reason, reader: r, threads: threads, counters: c, most: runtime.GOMAXPROCS(0)}
}

func (e *engine) Submit(requests []*Request) {
	if len(requests) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		refuse(requests)
		return
	}
	e.submitted(requests)
	for _, r := range requests {
		j := job{request: r}
		if r.File == nil || r.check() != nil {
			e.passing = append(e.passing, j)
			continue
		}
		if r.File.remote {
			e.remote = append(e.remote, j)
			continue
		}
		if j.direct = r.File.alwaysDirect(); j.direct {
			e.passing = append(e.passing, j)
			continue
		}
		e.waiting.push(j)
		e.bytes += len(r.Buf)
	}
	for e.lookers < e.most && e.lookers < e.waiting.len() && e.lookers*lookerBytes < e.bytes {
		e.lookers++
		e.looking.Go(e.look)
	}
	e.passing = hand(e.reader, e.passing)
	e.remote = hand(e.threads, e.remote)
}

// hand submits jobs, and returns their memory for reuse.
func hand(to reader, jobs []job) []job {
	if len(jobs) > 0 {
		to.submit(jobs)
		clear(jobs)
	}
	return jobs[:0]
}

// look is a looker. It ends when nothing is waiting.
func (e *engine) look() {
	var batch, missed [lookupBatch]job
	var room [lookupBatch]ended
	answered := ending{reads: room[:0]}
	for {
		n := e.take(&batch)
		if n == 0 {
			return
		}
		left := missed[:0]
		for i := range batch[:n] {
			if err := batch[i].request.begin(); err != nil {
				e.complete(batch[i].request, 0, err)
			} else if !e.answer(&batch[i], &answered) {
				left = append(left, batch[i])
			} else if answered.bytes >= lookerBytes {
				answered.complete(e.counters)
			}
		}
		answered.complete(e.counters)
		clear(batch[:n])
		switch {
		case len(left) == 1 && e.inFlight.Load() == 1 && !left[0].direct:
			// Nothing else is to be read: a ring would only be a detour.
			if !e.readAlone(left[0]) {
				return
			}
		case len(left) > 0:
			e.reader.submit(left)
		}
		clear(left)
	}
}

// take gives a looker its share of the waiting jobs. If that is none, it counts the looker out.
func (e *engine) take(batch *[lookupBatch]job) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	share := (e.waiting.len() + e.lookers - 1) / e.lookers
	n := min(share, lookupBatch)
	for i := range n {
		batch[i] = e.waiting.pop()
		e.bytes -= len(batch[i].request.Buf)
	}
	if n == 0 {
		e.lookers--
	}
	return n
}

// answer reads a job from the page cache, if it should be looked up there and all of it is found.
// Otherwise it sets how the rest is read.
func (e *engine) answer(j *job, answered *ending) bool {
	r := j.request
	if j.direct = r.File.readsDirectly(e.counters, r.OffsetBytes, len(r.Buf)); j.direct {
		return false
	}
	n, full := r.File.readCached(r.Buf, r.OffsetBytes)
	j.n = n
	if full {
		e.cached.Add(1)
		answered.add(r, n, nil)
	}
	return full
}

// ReadNow looks up like answer, but returns false for direct reads.
func (e *engine) ReadNow(r *Request) bool {
	if r.File == nil || r.File.remote || r.check() != nil || e.closed.Load() || r.File.wantsDirect(e.counters, r.OffsetBytes, len(r.Buf)) {
		return false
	}
	n, full := r.File.readCached(r.Buf, r.OffsetBytes)
	if !full || r.File.verify != nil && r.File.verify() != nil {
		return false
	}
	e.cached.Add(1)
	e.reads.Add(1)
	e.readBytes.Add(uint64(n))
	return true
}

// readAlone reads the only request, so that its looker may wait: others may be started meanwhile.
// It reports whether the looker should continue.
func (e *engine) readAlone(j job) bool {
	e.mu.Lock()
	e.lookers--
	e.mu.Unlock()
	more, err := pread(j.request.fd(), j.rest(), j.off())
	e.end(j.request, j.n+more, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lookers >= e.most {
		return false
	}
	e.lookers++
	return true
}

func (e *engine) Status() Status {
	s := e.status(e.name, e.reason)
	s.Stuck = e.threads.pool.Stuck()
	return s
}

func (e *engine) Close() error {
	e.once.Do(func() {
		e.mu.Lock()
		e.closed.Store(true)
		e.mu.Unlock()
		e.looking.Wait()
		e.closeErr = e.reader.close()
		if e.threads != e.reader {
			e.closeErr = errors.Join(e.closeErr, e.threads.close())
		}
	})
	return e.closeErr
}
