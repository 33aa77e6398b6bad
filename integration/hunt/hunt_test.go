package hunt

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// TestHunt runs the enumerated schedules, and then random ones until its time is over.
func TestHunt(t *testing.T) {
	serve.Tier(t, serve.Night)
	needAll(t)
	began := time.Now()
	run, failed := 0, 0
	try := func(s schedule) bool {
		s.seed = *huntSeed ^ uint64(s.number)*0x9E3779B97F4A7C15
		if *huntOnly >= 0 && s.number != *huntOnly || *huntWay != "" && s.way.name != *huntWay {
			return true
		}
		run++
		if !t.Run(s.String(), func(t *testing.T) { s.run(t) }) {
			failed++
			t.Logf("again: go test ./integration/hunt -run TestHunt -v -hunt-seed %d -hunt-only %d", *huntSeed, s.number)
			return *huntGoOn
		}
		return true
	}
	known := enumerated()
	for _, s := range known {
		if !try(s) {
			return
		}
	}
	t.Logf("%d enumerated schedules took %v", run, time.Since(began).Round(time.Millisecond))
	if *huntOnly >= len(known) {
		try(random(*huntOnly, *huntSeed^uint64(*huntOnly)*0x9E3779B97F4A7C15))
	}
	for number := len(known); *huntOnly < 0 && time.Since(began) < *huntFor; number++ {
		if !try(random(number, *huntSeed^uint64(number)*0x9E3779B97F4A7C15)) {
			return
		}
	}
	t.Logf("%d schedules, of which %d failed, seed %d", run, failed, *huntSeed)
}

// run runs a schedule.
func (s schedule) run(t *testing.T) {
	h := newHunter(t, s)
	if s.way.cat {
		h.huntCat(s)
	} else {
		h.huntMount(s)
	}
	t.Logf("%v, %d openings, %d reads, %d MiB compared, %d errors that had a reason", time.Since(h.start).Round(time.Millisecond), h.opened.Load(), h.reads.Load(), h.bytes.Load()>>20, h.errors.Load())
	for i, text := range h.findings.texts {
		if i == 5 {
			t.Errorf("and %d more", len(h.findings.texts)-i)
			break
		}
		t.Errorf("%s", text)
	}
	if t.Failed() && h.server != nil {
		log := h.server.Log.String()
		t.Logf("the server said: %s", log[max(0, len(log)-4000):])
	}
}

func (h *hunter) huntMount(s schedule) {
	t := h.t
	r := rand.New(rand.NewPCG(s.seed, 4))
	var plan []deedOfPlan
	if s.plan != nil {
		plan = s.plan(h, r)
	}
	h.prepare(plan)
	h.mount(s.descriptors)
	idle, err := figuresOf(h.statusJSON())
	require.NoError(t, err)
	if s.first != nil {
		h.startReaders()
		s.first(h, r)
	} else {
		h.readThrough(h.streams[:h.order.deals()[0][1]])
		h.startReaders()
	}
	h.takesItsWay()
	for _, p := range plan {
		if h.ctx.Err() != nil {
			break
		}
		if r.IntN(3) == 0 {
			h.annoy(r)
		}
		h.changeSomehow(p.change, p.shard, p.draws())
		if s.number >= len(enumerated()) {
			h.betweenChanges(r)
		}
	}
	if s.steps != nil {
		s.steps(h, r)
	}
	h.pause(20 * time.Millisecond)
	h.stop()
	if len(h.findings.texts) > 0 {
		return
	}
	h.readThrough(h.streams[:h.order.deals()[0][1]])
	h.calm(idle.goroutines)
	h.unmount()
	if s.again && len(h.findings.texts) == 0 {
		h.again()
	}
}

// takesItsWay waits until bytes have taken the path under test: reads so far may still be in
// progress on it, for example if a shard has not been decoded to its end.
func (h *hunter) takesItsWay() {
	for deadline := time.Now().Add(endLimit / 3); h.way.taken != nil && h.ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		f, err := figuresOf(h.statusJSON())
		if err == nil && h.way.taken(f) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			h.find("bytes did not take the way that is hunted: %s, %v", describe(f), err)
		}
	}
}

// annoy does something that changes no shard.
func (h *hunter) annoy(r *rand.Rand) { nuisances[r.IntN(len(nuisances))].do(h, r) }

// betweenChanges takes another step of a random schedule.
func (h *hunter) betweenChanges(r *rand.Rand) {
	switch {
	case r.IntN(2) == 0:
		h.annoy(r)
	case h.fuse != nil && r.IntN(2) == 0:
		some := h.untouchedTargets()
		if len(some) == 0 {
			return
		}
		f := faults[r.IntN(len(faults))]
		if (!f.uncached || h.source.options.Uncached) && f.name != "changed while reads stall" && f.name != "changed while openings stall" {
			f.do(h, some[r.IntN(len(some))], r)
		}
	case h.fuse != nil && h.source.options.NewInodes:
		if some := h.untouchedTargets(); len(some) > 0 {
			h.forget(some[r.IntN(len(some))])
		}
	}
}

func describe(f figures) string {
	return fmt.Sprintf("fetch %+v, engine %+v", f.fetch, f.engine)
}
