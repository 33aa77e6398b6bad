package diskcache

import (
	"errors"
	"time"
)

// free makes a writer free what the share has of a chunk that no reader wants any more.
func (s *Storage) free(c chunk) {
	if s.begin(1) { // otherwise Close frees all of the share
		s.writers.add(freeing{s, c})
	}
}

// freeing is a chunk whose pages are to be freed.
type freeing struct {
	s *Storage
	c chunk
}

// run implements task.
func (f freeing) run() {
	defer f.s.end()
	f.s.doneWith(f.c)
	f.s.ahead.poke() // there may be room for others now
}

func (s *Storage) doneWith(c chunk) {
	s.mu.Lock()
	o := s.objects[c.object]
	if o == nil {
		s.mu.Unlock()
		return // objects with pages in the share are remembered
	}
	s.use(o)
	s.mu.Unlock()
	s.drop(o, c.off, c.n)
	s.release(o)
}

// drop frees the pages of the share that a range covers. A page in which two ranges meet is freed
// with the second. Pages in transit are dropped when they have been written. The object is in use.
func (s *Storage) drop(o *object, off, n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var gone []run
	for r := runOf(off, n); r.begin < r.end; {
		page := r.begin
		if f := o.flightAt(page); f != nil {
			end := min(f.pages.end, r.end)
			if f.place == inShare {
				begin, until := max(off, page*pageBytes), min(off+n, end*pageBytes)
				f.done = append(f.done, span{begin, until - begin})
			}
			r.begin = end
			continue
		}
		r.begin++
		if o.doneWith(page, off, n) {
			gone = with(gone, page)
		}
	}
	for _, r := range gone {
		s.dropRun(o, r)
	}
}

// doneWith reports whether a page leaves the share because a range does. o.mu is held.
func (o *object) doneWith(page, off, n int64) bool {
	if !o.shared.has(page) {
		return false
	}
	begin, end := page*pageBytes, min((page+1)*pageBytes, o.sizeBytes)
	done := min(off+n, end) - max(off, begin)
	if done += o.edges[page]; done < end-begin {
		if o.edges == nil {
			o.edges = map[int64]int64{}
		}
		o.edges[page] = done
		return false
	}
	delete(o.edges, page)
	return true
}

// dropRun frees pages of the share, their sums first. o.mu is held, so that no flight fetches them
// again meanwhile.
func (s *Storage) dropRun(o *object, r run) {
	for page := r.begin; page < r.end; page++ {
		o.shared.remove(page)
	}
	// A count that ends meanwhile takes this back, and has or has not found them, so the estimate
	// is never too low.
	s.room.drop(r.bytes())
	defer s.room.gone()
	files := s.opened(o, false)
	if files == nil {
		return // another process has removed the object
	}
	if err := s.dir.drop(files, r); err != nil {
		s.failed("free pages of "+o.listed.Path, err)
	}
}

// drop removes pages from an object's files: it spoils them, and frees their disk space.
func (c *directory) drop(files *pair, r run) error {
	if err := c.spoil(files, r); err != nil {
		return err
	}
	return c.disk.punch(files.data.FD(), r.begin*pageBytes, r.bytes())
}

// spoil makes pages count as missing: it clears their sums. Readers of sealed objects, and notes
// that all pages were checked, rely on the times of the data, so it sets them. For drop it does so
// before the pages are gone: some file systems (tmpfs) change the times only afterwards.
func (c *directory) spoil(files *pair, r run) error {
	return errors.Join(c.zero(files.sums.FD(), r), c.disk.touch(files.data.FD(), time.Now()))
}

// zeros are cleared sums.
var zeros [64 << 10]byte

// zero clears the sums of pages.
func (c *directory) zero(sums int, r run) error {
	for r.begin < r.end {
		n := min(r.pages(), int64(len(zeros)/sumBytes))
		if err := c.disk.write(sums, zeros[:n*sumBytes], sumsAt(r.begin)); err != nil {
			return err
		}
		r.begin += n
	}
	return nil
}

// emptyShare frees all of the share. Nothing else is in progress.
func (s *Storage) emptyShare() {
	s.mu.Lock()
	var all []*object
	for _, o := range s.objects {
		if o.shared.n > 0 {
			all = append(all, o)
			s.use(o)
		}
	}
	s.mu.Unlock()
	for _, o := range all {
		o.mu.Lock()
		var runs []run
		for page := range o.pages {
			if o.shared.has(page) {
				runs = with(runs, page)
			}
		}
		for _, r := range runs {
			s.dropRun(o, r)
		}
		o.mu.Unlock()
		s.release(o)
	}
}
