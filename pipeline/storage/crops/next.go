package crops

// next waits for a job that there is room for. Completed reads go first, so that the bytes under
// way stay bounded. A job that there is no room for waits in order, and smaller ones overtake it,
// unless they need the same room. group is memory for a group.
func (s *Storage) next(group []*task) (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if j, ok := s.ready(group); ok {
			return j, true
		}
		if s.closed && s.underWay == 0 {
			return job{}, false
		}
		s.some.Wait()
	}
}

// ready returns a job that there is room for, if there is one. The caller holds s.mu.
func (s *Storage) ready(group []*task) (job, bool) {
	if j, ok := s.nextJob(); ok {
		return j, true
	}
	if s.inFlight+s.reserved < s.maxInFlight {
		return s.nextTasks(group)
	}
	return job{}, false
}

// nextJob takes the first job that there is room for. The caller holds s.mu.
func (s *Storage) nextJob() (j job, ok bool) {
	if s.largeJobs.len() > 0 {
		if taken, fits := s.take(s.largeJobs.front().sizes()); fits {
			j = s.largeJobs.pop()
			j.taken = taken
			s.wakeNext()
			return j, true
		}
	}
	for s.jobs.len() > 0 {
		j = s.jobs.pop()
		n := j.sizes()
		if small := n.sum() <= s.each(); small || s.largeJobs.len() == 0 {
			if j.taken, ok = s.take(n); ok {
				return j, true
			}
		}
		s.largeJobs.push(j)
	}
	return job{}, false
}

// nextTasks takes the first tasks that there is room for. The caller holds s.mu.
func (s *Storage) nextTasks(group []*task) (job, bool) {
	if s.largeTasks.len() > 0 && s.largeJobs.len() == 0 {
		if taken, ok := s.take(s.largeTasks.front().sizes()); ok {
			return s.nextGroup(&s.largeTasks, group, taken), true
		}
	}
	for s.tasks.len() > 0 {
		n := s.tasks.front().sizes()
		if small := n.sum() <= s.each(); small || s.largeTasks.len() == 0 && s.largeJobs.len() == 0 {
			if taken, ok := s.take(n); ok {
				return s.nextGroup(&s.tasks, group, taken), true
			}
		}
		s.largeTasks.push(s.tasks.pop())
	}
	return job{}, false
}

// wakeNext wakes one worker if there is more to do. Each worker wakes the next, so that all wake if
// several jobs have come at once. The caller holds s.mu.
func (s *Storage) wakeNext() {
	if s.tasks.len() > 0 || s.largeTasks.len() > 0 || s.largeJobs.len() > 0 {
		s.some.Signal()
	}
}

// nextGroup takes the next tasks of one object out of a queue. The bytes that they may read from
// below stay reserved until they have been begun. The caller holds s.mu.
func (s *Storage) nextGroup(from *queue[*task], group []*task, taken int64) job {
	bytes, most := int64(0), min(groupBytes, s.maxInFlight-s.inFlight-s.reserved)
	for len(group) < groupChunks && from.len() > 0 {
		t := from.front()
		if len(group) > 0 && (bytes+t.field.chunkBytes > most || t.field != group[0].field || t.object != group[0].object || t.level != group[0].level) {
			break
		}
		if bytes += t.field.chunkBytes; len(group) == 0 && !t.placed() {
			bytes += t.field.Array.Levels[t.level].IndexBytes() // the index may be read first
		}
		group = append(group, from.pop())
		if s.waiting[t.key] == t {
			delete(s.waiting, t.key)
		}
	}
	s.reserved += bytes
	s.wakeNext()
	return job{group: group, reserved: bytes, taken: taken}
}

// begun releases the reservation of a group.
func (s *Storage) begun(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserved -= bytes
	s.wakeNext()
}

// push adds a job.
func (s *Storage) push(j job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs.push(j)
	s.some.Signal()
}

// queue is a first-in-first-out list that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// front returns the oldest item; there must be one.
func (q *queue[T]) front() T { return q.items[q.head] }

// at returns an item; 0 is the oldest.
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

// pop removes and returns the oldest item; there must be one.
func (q *queue[T]) pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	q.head++
	return x
}
