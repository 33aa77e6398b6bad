package catalog

import (
	"time"
)

// progressInterval is often enough for a bar that moves smoothly.
const progressInterval = 100 * time.Millisecond

// reporter calls Config.Progress from one goroutine, which lives from
// newReporter to stop.
type reporter struct {
	counters
	report func(Progress)
	plan   chan Progress // totals, once they are known
	ready  chan bool     // whether to say Done
	ended  chan struct{}
}

func newReporter(report func(Progress)) *reporter {
	r := &reporter{report: report, plan: make(chan Progress, 1), ready: make(chan bool, 1), ended: make(chan struct{})}
	if report == nil {
		close(r.ended)
		return r
	}
	go r.run(time.Now())
	return r
}

// planned tells the totals, once.
func (r *reporter) planned(totals Progress) { r.plan <- totals }

// stop ends the reports and waits for the last one, which says Done only when
// done. Called once.
func (r *reporter) stop(done bool) {
	r.ready <- done
	<-r.ended
}

func (r *reporter) run(begin time.Time) {
	defer close(r.ended)
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	var totals Progress
	tell := func(done bool) {
		p := totals
		p.Shards, p.Bytes = int(r.shards.Load()), r.bytes.Load()
		p.Records += r.records.Load()
		p.Elapsed, p.Done = time.Since(begin), done
		r.report(p)
	}
	for {
		select {
		case totals = <-r.plan:
		case <-ticker.C:
			tell(false)
		case done := <-r.ready:
			if done {
				select {
				case totals = <-r.plan:
				default:
				}
				tell(true)
			}
			return
		}
	}
}
