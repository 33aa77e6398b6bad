package fs

import (
	"context"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
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
		Possible: func(readBytes float64) float64 { return profile.Possible(p.Measured, readBytes) },
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
func storageName(k profile.Kind) string {
	switch k {
	case profile.KindDisk, profile.KindSSD, profile.KindVirtual:
		return "the disk"
	case profile.KindNetwork:
		return "the network storage"
	case profile.KindObject:
		return "the bucket"
	case profile.KindWeb:
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
