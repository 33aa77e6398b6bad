package order

// layout describes how S is cut into groups and lanes, and which lane each position of G comes from
// (ORDER.md, Shuffles).
type layout struct {
	chunks *chunks
	batch  uint64 // the order's batch: number of consecutive positions of a group
	groups []group
	lanes  []lane
	window uint64 // R: the number of records of a lane that are shuffled among themselves
}

// group is a set of lanes that is read together.
type group struct {
	first   uint64 // its first lane
	lanes   uint64 // number of lanes, M
	records uint64
	turnKey uint64
}

// lane is a slice of S.
type lane struct {
	key     uint64
	place   uint64 // position in S
	records uint64
}

type layoutOptions struct {
	seed, epoch         uint64
	size                uint64 // shuffle size, over all lanes
	lanes, groups, step uint64 // step: the order's batch
}

func newLayout(o layoutOptions, total uint64, c *chunks) *layout {
	if o.size >= total {
		o.lanes, o.groups = 1, 1
	}
	if o.groups == 1 {
		o.step = max(total, 1) // one group: its positions are all positions
	}
	l := &layout{
		chunks: c, batch: o.step,
		groups: make([]group, o.groups), lanes: make([]lane, o.lanes),
		window: max(1, o.size/o.lanes+min(1, o.size%o.lanes)),
	}
	place := uint64(0)
	perGroup := o.lanes / o.groups
	for g := range l.groups {
		l.groups[g] = group{
			first: uint64(g) * perGroup, lanes: perGroup,
			records: l.passed(uint64(g), total),
			turnKey: key("turn", o.seed, o.epoch, uint64(g)),
		}
		place = l.cut(&l.groups[g], place, o)
	}
	return l
}

// cut cuts the records of a group, which begin at place, into its lanes, and returns the position
// after them.
func (l *layout) cut(g *group, place uint64, o layoutOptions) uint64 {
	base, extra := g.records/g.lanes, g.records%g.lanes
	turn := g.turn(base)
	for m := range g.lanes {
		n := base
		if (m+g.lanes-turn)%g.lanes < extra {
			n++
		}
		number := g.first + m
		l.lanes[number] = lane{key: key("lane", o.seed, o.epoch, number), place: place, records: n}
		place += n
	}
	return place
}

// turn returns the lane of the group (0 … M-1) with which round r begins.
func (g *group) turn(r uint64) uint64 {
	if g.lanes == 1 {
		return 0
	}
	return below(g.turnKey, r, g.lanes)
}

// passed returns the number of positions below p that belong to group g.
func (l *layout) passed(g, p uint64) uint64 {
	if len(l.groups) == 1 {
		return p
	}
	cycle := l.batch * uint64(len(l.groups)) // at most 2^32 · 2^16
	rest := p % cycle
	return p/cycle*l.batch + min(l.batch, rest-min(rest, g*l.batch))
}

// steps calls visit with each lane's number and the number of its records below position p of G.
func (l *layout) steps(p uint64, visit func(lane int, steps uint64)) {
	for i := range l.groups {
		g := &l.groups[i]
		q := l.passed(uint64(i), p)
		round, rest := q/g.lanes, q%g.lanes
		turn := g.turn(round)
		for m := range g.lanes {
			n := round
			if (m+g.lanes-turn)%g.lanes < rest {
				n++
			}
			visit(int(g.first+m), n)
		}
	}
}

// laneSteps returns the number that steps passes to visit for one lane.
func (l *layout) laneSteps(lane int, p uint64) uint64 {
	i := uint64(lane) / l.groups[0].lanes // all groups have the same number of lanes
	g := &l.groups[i]
	q := l.passed(i, p)
	round, rest := q/g.lanes, q%g.lanes
	if (uint64(lane)-g.first+g.lanes-g.turn(round))%g.lanes < rest {
		return round + 1
	}
	return round
}

// rota yields the lanes of successive positions.
type rota struct {
	layout *layout
	group  int
	left   uint64 // positions until the next group's turn
	rounds []round
}

// round is a group's position in its current round.
type round struct {
	number uint64
	lane   uint64 // next lane of the group
	left   uint64 // lanes left in the round
}

// seek moves to position p.
func (r *rota) seek(p uint64) {
	groups := r.layout.groups
	if r.rounds == nil {
		r.rounds = make([]round, len(groups))
	}
	for i := range groups {
		g := &groups[i]
		q := r.layout.passed(uint64(i), p)
		number, rest := q/g.lanes, q%g.lanes
		r.rounds[i] = round{number: number, lane: (rest + g.turn(number)) % g.lanes, left: g.lanes - rest}
	}
	r.group = int(p / r.layout.batch % uint64(len(groups)))
	r.left = r.layout.batch - p%r.layout.batch
}

// next fills dst with the lanes of the next positions.
func (r *rota) next(dst []uint32) {
	for len(dst) > 0 {
		if r.left == 0 {
			if r.group++; r.group == len(r.rounds) {
				r.group = 0
			}
			r.left = r.layout.batch
		}
		n := min(r.left, uint64(len(dst)))
		r.rounds[r.group].next(&r.layout.groups[r.group], dst[:n])
		r.left -= n
		dst = dst[n:]
	}
}

func (r *round) next(g *group, dst []uint32) {
	number, lane, left := r.number, r.lane, r.left
	for i := range dst {
		dst[i] = uint32(g.first + lane)
		if lane++; lane == g.lanes {
			lane = 0
		}
		if left--; left == 0 {
			number++
			lane, left = g.turn(number), g.lanes
		}
	}
	r.number, r.lane, r.left = number, lane, left
}
