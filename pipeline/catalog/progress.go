package catalog

import (
	"sync"
	"sync/atomic"
	"time"
)

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
