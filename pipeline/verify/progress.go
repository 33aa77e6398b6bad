package verify

import (
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// tellEvery is often enough for a bar that moves smoothly.
const tellEvery = 100 * time.Millisecond

// teller reports progress from a goroutine of its own, which lives from
// newTeller to stop.
type teller struct {
	once  sync.Once
	ready chan bool // whether to say Done
	ended chan struct{}
}

func newTeller(report func(catalog.Progress), r *run) *teller {
	t := &teller{ready: make(chan bool, 1), ended: make(chan struct{})}
	if report == nil {
		close(t.ended)
		return t
	}
	state := catalog.Progress{ShardsTotal: len(r.results)}
	for i := range r.results {
		state.BytesTotal += r.config.Catalog.Shard(i).Object.SizeBytes
	}
	go t.run(report, r, state)
	return t
}

func (t *teller) run(report func(catalog.Progress), r *run, state catalog.Progress) {
	defer close(t.ended)
	began := time.Now()
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	tell := func(done bool) {
		state.Shards, state.Bytes, state.Records = int(r.shards.Load()), r.bytes.Load(), r.records.Load()
		state.Elapsed, state.Done = time.Since(began), done
		report(state)
	}
	for {
		select {
		case <-ticker.C:
			tell(false)
		case done := <-t.ready:
			if done {
				tell(true)
			}
			return
		}
	}
}

// stop ends the reports and waits for the last one, which says Done only when
// done. Only the first call counts.
func (t *teller) stop(done bool) {
	t.once.Do(func() { t.ready <- done })
	<-t.ended
}
