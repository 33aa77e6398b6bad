package hunt

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// drawChange draws a change that lasts, can be told on the source, and needs nothing
// before the mount.
func (h *hunter) drawChange(r *rand.Rand) change {
	for {
		if c := changes[r.IntN(len(changes))]; c.prepare == nil && !c.two && !c.passes && c.applies(h.source) {
			return c
		}
	}
}

// change does something to a shard.
func (h *hunter) change(c change, shard int, r *rand.Rand) {
	h.target.Store(int64(shard))
	touched := []int{shard}
	if c.two {
		touched = append(touched, shard+1)
	}
	deed := h.begin(c.name, !c.passes, true, touched...)
	err := c.do(h.d.site(shard, h.behind, r))
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil // this file system can't
	}
	if err != nil {
		h.find("%s of shard %d: %v", c.name, shard, err)
	}
	if c.passes {
		h.turnsOfAll()
	}
	h.end(deed)
}

// changeSomehow does something to a shard, in one of the circumstances that make it
// harder to notice.
func (h *hunter) changeSomehow(c change, shard int, r *rand.Rand) {
	h.target.Store(int64(shard))
	switch r.IntN(8) {
	case 0: // while the server stands still
		var changing sync.WaitGroup
		h.signalServer(syscall.SIGSTOP)
		changing.Go(func() { h.change(c, shard, r) })
		time.Sleep(time.Duration(1+shard%20) * time.Millisecond)
		h.signalServer(syscall.SIGCONT)
		changing.Wait()
	case 1: // all at once
		h.change(c, shard, r)
	default: // when its readers have it in use
		h.pause(time.Duration(r.IntN(12)) * time.Millisecond)
		h.change(c, shard, r)
		h.pause(time.Duration(r.IntN(12)) * time.Millisecond)
	}
	if h.fuse != nil { // what the kernel has of it would be given out for ever
		h.evict(h.dir, shard)
		h.pause(time.Duration(5+r.IntN(12)) * time.Millisecond)
	}
}

// prepare does what changes need before the mount.
func (h *hunter) prepare(plan []deedOfPlan) {
	for _, p := range plan {
		if p.change.prepare == nil {
			continue
		}
		if err := p.change.prepare(h.d.site(p.shard, h.behind, p.draws())); err != nil {
			h.find("prepare %s: %v", p.change.name, err)
		}
	}
}

// deedOfPlan is a change and the shard that it is made to.
type deedOfPlan struct {
	change change
	shard  int
	seed   uint64
}

// draws gives the same each time, so that what is prepared is what is changed.
func (p deedOfPlan) draws() *rand.Rand { return rand.New(rand.NewPCG(p.seed, uint64(p.shard))) }

// everyChange plans each change that applies, each to shards of its own.
func (h *hunter) everyChange(r *rand.Rand) (plan []deedOfPlan) {
	var some []change
	for _, c := range changes {
		if c.applies(h.source) {
			some = append(some, c)
		}
	}
	return h.planned(some, r)
}

// planned gives changes their shards, in an order that is drawn.
func (h *hunter) planned(some []change, r *rand.Rand) (plan []deedOfPlan) {
	r.Shuffle(len(some), func(i, k int) { some[i], some[k] = some[k], some[i] })
	shard := 0
	for _, c := range some {
		need := 1
		if c.two {
			need = 2
		}
		if shard+need > targets {
			break
		}
		plan = append(plan, deedOfPlan{c, shard, r.Uint64()})
		shard += need
	}
	r.Shuffle(len(plan), func(i, k int) { plan[i], plan[k] = plan[k], plan[i] })
	return plan
}

// untouchedTargets are those that are as they were.
func (h *hunter) untouchedTargets() (some []int) {
	for shard := range targets {
		if !h.touched(shard) {
			some = append(some, shard)
		}
	}
	return some
}

func (h *hunter) statusJSON() string { return filepath.Join(h.point, "status.json") }
