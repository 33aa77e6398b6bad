package fs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// recorder keeps the counters at each second of the last minute, to report what has happened since.
// It is one goroutine, which looks ten times a second while there are readers, and otherwise once a
// second.
type recorder struct {
	dataset string // the dataset's name, without secrets
	// connections bounds the concurrent requests to a service.
	connections int
	meter       *meter.Meter
	status      func() pipeline.Status
	traffic     *traffic
	readers     func(now int64) (recent, active int)
	changes     changeLog

	mu      sync.Mutex
	last    explain.Snapshot // its Recent, Active, Fill and Looked are current as of its At
	first   explain.Snapshot
	seconds [recordedSeconds]explain.Snapshot // a ring: the next one goes to at
	at, n   int

	stop chan struct{}
	once sync.Once
	work sync.WaitGroup
}

const (
	recordedSeconds = 61
	lookEvery       = 100 * time.Millisecond
	second          = int64(time.Second)
)

func newRecorder(t *tree) *recorder {
	r := &recorder{
		dataset: t.dataset.Spec().Dataset, connections: t.dataset.Spec().Remote.Connections, meter: t.dataset.Meter(), status: t.dataset.Status, traffic: &t.traffic, readers: t.handles.readers, stop: make(chan struct{}),
	}
	r.changes = changeLog{log: t.log, help: t.changedHelp()}
	r.first = r.snapshot(meter.Now())
	r.last = r.first
	r.keep(r.first)
	return r
}

func (r *recorder) start() { r.work.Go(r.run) }

// close stops the goroutine and waits for it. It is idempotent.
func (r *recorder) close() {
	r.once.Do(func() { close(r.stop) })
	r.work.Wait()
}

func (r *recorder) run() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	kept := r.first.At
	for {
		select {
		case <-r.stop:
			r.changes.tell(r.status().Changed)
			return
		case <-timer.C:
		}
		now := meter.Now()
		active := r.look(now)
		if now-kept >= second {
			kept = now
			s := r.snapshot(now)
			r.mu.Lock()
			r.keep(s)
			r.mu.Unlock()
			r.changes.tell(r.status().Changed)
		}
		if active {
			timer.Reset(lookEvery)
		} else {
			timer.Reset(time.Second)
		}
	}
}

// look adds up what can't be counted as it happens, and reports whether there are active readers.
func (r *recorder) look(now int64) (active bool) {
	recent, n := r.readers(now)
	t := r.meter.Times(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.last
	since := now - l.At
	if since <= 0 {
		return n > 0
	}
	l.Recent += int64(recent) * since
	l.Active += int64(n) * since
	for s := range l.Fill {
		l.Fill[s] += max(t.Queued[s], 0) * since
	}
	l.Looked += since
	l.At = now
	return n > 0
}

// snapshot returns all counters at now.
func (r *recorder) snapshot(now int64) explain.Snapshot {
	r.mu.Lock()
	s := r.last
	r.mu.Unlock()
	s.Times = r.meter.Times(now)
	p := r.status()
	s.Bytes[meter.Storage], s.Reads = p.Engine.ReadBytes, p.Engine.Reads
	if r := p.Remote; r != nil {
		s.Requests, s.Throttled = requests(r), r.Throttled
		s.Bytes[meter.Storage], s.Reads = r.Bytes, s.Requests
	}
	s.Bytes[meter.Decompress] = p.Fetch.DecodedBytes
	s.Bytes[meter.Gather] = p.Fetch.BytesRead
	s.Bytes[meter.Copy] = p.Fetch.BytesOut
	s.Bytes[meter.FUSE] = uint64(r.traffic.bytes.Load())
	return s
}

// keep must be called with mu held, or before r is shared.
func (r *recorder) keep(s explain.Snapshot) {
	r.seconds[r.at] = s
	r.at = (r.at + 1) % len(r.seconds)
	r.n = min(r.n+1, len(r.seconds))
}

// before returns the latest snapshot that is at least age old at now, or the oldest.
func (r *recorder) before(now, age int64) explain.Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.first
	for i := range r.n {
		x := r.seconds[(r.at-1-i+len(r.seconds))%len(r.seconds)]
		s = x
		if now-x.At >= age {
			break
		}
	}
	return s
}

// explained is the part of status.json about where time goes.
type explained struct {
	Verdict explain.Verdict `json:"verdict"`
	// Waiting is the request that has waited for the longest, if any is waiting.
	Waiting *explain.Waiting `json:"waiting,omitempty"`
	Cores   int              `json:"cores"`
	Second  explain.Window   `json:"second"`
	Minute  explain.Window   `json:"minute"`
	Start   explain.Window   `json:"start"`
}

// now returns all counters as of now.
func (r *recorder) now() explain.Snapshot {
	now := meter.Now()
	r.look(now)
	return r.snapshot(now)
}

// explain evaluates the counters as of now.
func (r *recorder) explain() explained {
	s := r.now()
	now := s.At
	e := explained{
		Second: explain.Between(r.before(now, second), s, true),
		Minute: explain.Between(r.before(now, 60*second), s, false),
		Start:  explain.Between(r.first, s, false),
		Cores:  max(r.meter.Cores, 1),
	}
	p := r.status()
	facts := explain.Facts{
		Cores: e.Cores, Storage: storageName(p.Storage.Kind),
		Possible: func(readBytes float64) float64 { return filesystem.Possible(p.Measured, readBytes) },
	}
	if p.Remote != nil {
		facts.Storage = r.dataset
		facts.Service = func(seconds float64) explain.Service {
			return serviceSince(r.before(now, int64((seconds-0.002)*float64(time.Second))), s, p.Remote, r.connections)
		}
	}
	if w, ok := r.meter.Readers.Oldest(now); ok {
		facts.Waiting = explain.Waiting{Seconds: float64(w.Nanos) / 1e9, Stage: w.On.String(), Object: w.Object}
		e.Waiting = &facts.Waiting
	}
	e.Verdict = explain.Judge(e.Second, e.Minute, facts)
	return e
}

// storageName is the common name of a kind of storage.
func storageName(k storage.Kind) string {
	switch k {
	case storage.KindDisk, storage.KindSSD, storage.KindVirtual:
		return "the disk"
	case storage.KindNetwork:
		return "the network storage"
	case storage.KindObject:
		return "the bucket"
	case storage.KindWeb:
		return "the web server"
	}
	return "storage"
}

// Sentence describes what readers wait for, or that lsiofs waits for them: the first line of
// status. It may be called at any time until Wait has returned.
func (m *Mount) Sentence() string { return m.tree.recorder.explain().Verdict.Text }

// orderWait books a wait for sizes of streams, which are computed from the order.
func (t *tree) orderWait(ctx context.Context, f func(context.Context) error) error {
	w := meter.Waiter{Ledger: &t.dataset.Meter().Readers}
	number := w.Begin(meter.Order, nil, nil, 0)
	defer w.End(number)
	return f(ctx)
}

// traffic counts what clients have been sent, since the mount and since the last look.
type traffic struct {
	bytes, reads atomic.Int64

	mu       sync.Mutex
	last     time.Time
	lastSent int64
}

func (t *traffic) sent(n int64) {
	t.bytes.Add(n)
	t.reads.Add(1)
}

// rates are in bytes per second.
type rates struct {
	SinceMount float64 `json:"since_mount"`
	SinceLast  float64 `json:"since_last_status"`
}

// look returns the rates at now, and begins a new interval.
func (t *traffic) look(started, now time.Time) rates {
	sent := t.bytes.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	since, before := t.last, t.lastSent
	if since.IsZero() {
		since = started
	}
	t.last, t.lastSent = now, sent
	return rates{SinceMount: perSecond(sent, now.Sub(started)), SinceLast: perSecond(sent-before, now.Sub(since))}
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// kernelFacts is what this kernel can do for a mount, known once it is mounted.
type kernelFacts struct{ report atomic.Pointer[kernelReport] }

type kernelReport struct {
	Release  string   `json:"release"`
	Protocol string   `json:"fuse_protocol"`
	Lacks    []string `json:"lacks"` // in words
	// RequestsBy is how requests come: /dev/fuse or io_uring.
	RequestsBy string `json:"requests_by"`
}

func (k *kernelFacts) set(in *fuse.InitIn, ringed bool) {
	r := &kernelReport{RequestsBy: "/dev/fuse", Protocol: fmt.Sprintf("%d.%d", in.Major, in.Minor), Lacks: []string{}}
	if ringed {
		r.RequestsBy = "io_uring"
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		r.Release = unix.ByteSliceToString(u.Release[:])
	}
	if in.Flags64()&fuse.CAP_DIRECT_IO_ALLOW_MMAP == 0 {
		r.Lacks = append(r.Lacks, "shared mmap of stream files (Linux 6.6): map them privately (MAP_PRIVATE, Python: mmap.ACCESS_COPY), or read them")
	}
	if in.Flags64()&fuse.CAP_MAX_PAGES == 0 {
		r.Lacks = append(r.Lacks, "reads of more than 128 KiB (Linux 4.20): reading costs more CPU")
	}
	k.report.Store(r)
}

// get returns what is known; an empty report before the mount is complete.
func (k *kernelFacts) get() kernelReport {
	if r := k.report.Load(); r != nil {
		return *r
	}
	return kernelReport{Lacks: []string{}}
}
