package hunt

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// drawChange draws a change that lasts, can be noticed on the source, and needs no preparation
// before the mount.
func (h *hunter) drawChange(r *rand.Rand) change {
	for {
		if c := changes[r.IntN(len(changes))]; c.prepare == nil && !c.two && !c.passes && c.applies(h.source) {
			return c
		}
	}
}

// change makes a change to a shard.
func (h *hunter) change(c change, shard int, r *rand.Rand) {
	h.target.Store(int64(shard))
	touched := []int{shard}
	if c.two {
		touched = append(touched, shard+1)
	}
	deed := h.begin(c.name, !c.passes, true, touched...)
	err := c.do(h.d.site(shard, h.behind, r))
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = nil // not supported by this file system
	}
	if err != nil {
		h.find("%s of shard %d: %v", c.name, shard, err)
	}
	if c.passes {
		h.turnsOfAll()
	}
	h.end(deed)
}

// changeSomehow makes a change to a shard in circumstances that may make it harder to notice.
func (h *hunter) changeSomehow(c change, shard int, r *rand.Rand) {
	h.target.Store(int64(shard))
	switch r.IntN(8) {
	case 0: // while the server is stopped
		var changing sync.WaitGroup
		h.signalServer(syscall.SIGSTOP)
		changing.Go(func() { h.change(c, shard, r) })
		time.Sleep(time.Duration(1+shard%20) * time.Millisecond)
		h.signalServer(syscall.SIGCONT)
		changing.Wait()
	case 1: // all at once
		h.change(c, shard, r)
	default: // while readers are using it
		h.pause(time.Duration(r.IntN(12)) * time.Millisecond)
		h.change(c, shard, r)
		h.pause(time.Duration(r.IntN(12)) * time.Millisecond)
	}
	if h.fuse != nil { // otherwise the kernel would serve its pages forever
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

// deedOfPlan is a change and the shard to change.
type deedOfPlan struct {
	change change
	shard  int
	seed   uint64
}

// draws returns the same generator each time, so that the prepared file is the one that is changed.
func (p deedOfPlan) draws() *rand.Rand { return rand.New(rand.NewPCG(p.seed, uint64(p.shard))) }

// everyChange plans each change that applies, each to its own shards.
func (h *hunter) everyChange(r *rand.Rand) (plan []deedOfPlan) {
	var some []change
	for _, c := range changes {
		if c.applies(h.source) {
			some = append(some, c)
		}
	}
	return h.planned(some, r)
}

// planned assigns shards to changes, in random order.
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

// untouchedTargets returns the targets that have not been changed.
func (h *hunter) untouchedTargets() (some []int) {
	for shard := range targets {
		if !h.touched(shard) {
			some = append(some, shard)
		}
	}
	return some
}

func (h *hunter) statusJSON() string { return filepath.Join(h.point, "status.json") }
