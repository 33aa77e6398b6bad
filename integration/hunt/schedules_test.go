package hunt

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// schedule is what is done with one mount.
type schedule struct {
	number int
	seed   uint64
	way    way
	source source
	mixed  bool
	// descriptors is the server's limit of descriptors, 0 for the usual one.
	descriptors int
	// first is done before anything has been read, once the readers run.
	first func(h *hunter, r *rand.Rand)
	// steps is done after the planned changes.
	steps func(h *hunter, r *rand.Rand)
	what  string // describes the steps
	// plan returns the changes to make; nil for none.
	plan func(h *hunter, r *rand.Rand) []deedOfPlan
	// again compares a second mount with the reference.
	again bool
}

func (s schedule) String() string {
	order := "in order"
	if s.mixed {
		order = "mixed"
	}
	return fmt.Sprintf("%d %s on %s %s with %s", s.number, s.way.name, s.source.name, order, s.what)
}

// enumerated returns the schedules that every hunt begins with: each way with each change, and, if
// the bytes come from another program, with each fault.
func enumerated() (all []schedule) {
	add := func(s schedule) {
		s.number = len(all)
		all = append(all, s)
	}
	everyChange := schedule{what: "every change", plan: (*hunter).everyChange, again: true}
	for i, w := range ways {
		s := everyChange
		s.way, s.source, s.mixed = w, ext4, i%2 == 1 && !w.decodes
		add(s)
	}
	for i, w := range ways {
		s := everyChange
		s.way, s.source, s.mixed, s.again = w, ext4, i%2 == 0 && !w.decodes, false
		switch {
		case w.cat:
			continue
		case w.local:
			s.source, s.mixed = []source{tmpfs, overlay}[i%2], true
			if !s.source.maps {
				s.way.taken = nil
			}
		default:
			s.source, s.what, s.plan, s.steps = fuse, "every fault", nil, everyFault
			s.first = func(h *hunter, _ *rand.Rand) { h.stallMany(targets-2, true) }
		}
		add(s)
	}
	for i, name := range []string{"scan", "copies of mappings", "gather by preads", "gzip members", "files"} {
		s := everyChange
		s.way, s.source, s.mixed, s.again = wayOf(name), cachingFuse, i%2 == 0, false
		s.way.taken = nil
		add(s)
		// Only files that are not open are forgotten.
		s.source, s.what, s.plan, s.steps, s.descriptors = forgetfulFuse, "forgotten", nil, forgetting, fewDescriptors
		add(s)
		s.source, s.what, s.steps, s.descriptors = uncachedFuse, "every fault", everyFault, 0
		add(s)
	}
	add(schedule{way: wayOf("spool"), source: ext4, mixed: true, what: "a spool that is spoilt", steps: spoiling})
	add(schedule{way: wayOf("gather by preads"), source: fuse, what: "many mappings", first: func(h *hunter, _ *rand.Rand) { h.stallMappings() }})
	return all
}

func wayOf(name string) way {
	for _, w := range ways {
		if w.name == name {
			return w
		}
	}
	panic(name)
}

// everyFault applies each fault to a shard of its own.
func everyFault(h *hunter, r *rand.Rand) {
	for i, f := range faults {
		if h.ctx.Err() != nil {
			return
		}
		if f.uncached && !h.source.options.Uncached {
			continue
		}
		f.do(h, i, r)
	}
}

// fewDescriptors makes a server open shards again and again.
const fewDescriptors = 64

// forgetting makes the kernel forget shards, one after the other.
func forgetting(h *hunter, r *rand.Rand) {
	for shard := range targets {
		h.forget(shard)
		h.pause(5 * time.Millisecond)
	}
}

// spoiling overwrites parts of the spool now and then.
func spoiling(h *hunter, r *rand.Rand) {
	for range 10 {
		h.spoil(r)
		h.pause(30 * time.Millisecond)
	}
	if h.ctx.Err() == nil && !h.spoilt {
		h.find("no spool was found")
	}
}

// random draws a schedule.
func random(number int, seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 3))
	s := schedule{number: number, what: "at random", again: r.IntN(4) == 0, mixed: r.IntN(2) == 0}
	for {
		s.way, s.source = ways[r.IntN(len(ways))], sources[r.IntN(len(sources))]
		if !s.way.local || s.source.maps {
			break
		}
	}
	if s.source.options == nil && !s.source.maps {
		s.way.taken = nil // elsewhere, what would be mapped is read
	}
	if r.IntN(3) == 0 {
		s.way.flags = append(s.way.flags[:len(s.way.flags):len(s.way.flags)], "--memory", []string{"1MiB", "6MiB", "64MiB"}[r.IntN(3)])
		s.way.taken = nil
	}
	if s.way.decodes && s.mixed {
		// With less memory, each record waits until its shard has been decoded again.
		s.way.flags = append(s.way.flags[:len(s.way.flags):len(s.way.flags)], "--memory", "24MiB")
	}
	if r.IntN(4) == 0 {
		s.descriptors = fewDescriptors
	}
	if s.source.options != nil && !s.source.options.NewInodes && r.IntN(3) == 0 {
		s.first = func(h *hunter, r *rand.Rand) { h.stallMany(1+r.IntN(targets-1), r.IntN(2) == 0) }
	}
	s.plan = func(h *hunter, r *rand.Rand) []deedOfPlan {
		plan := h.everyChange(r)
		return plan[:1+r.IntN(len(plan))]
	}
	return s
}
