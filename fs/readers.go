package fs

// closedReads is when each worker's files were last read through handles that are now closed. A
// program that reads a file, closes it and opens it again, or opens that of the next epoch, is one
// reader.
type closedReads struct{ last map[uint64]int64 }

// keptWorkers bounds it; workers beyond it are not counted as readers once their handles are
// closed.
const keptWorkers = 1024

// note records a handle that is being closed.
func (f *closedReads) note(h *streamHandle) {
	began := h.began.Load()
	if began == 0 {
		return
	}
	if f.last == nil {
		f.last = map[uint64]int64{}
	}
	if _, known := f.last[h.node.name.worker]; known || len(f.last) < keptWorkers {
		f.last[h.node.name.worker] = max(began, f.last[h.node.name.worker])
	}
}

// readers returns the number of readers in the last minute, and how many of them read in the last
// second or have a read pending. It counts open handles, and workers without any.
func (s *handles) readers(now int64) (recent, active int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[uint64]bool{} // by worker
	count := func(began int64, reads bool) bool {
		switch {
		case began == 0 || !reads && now-began > 60*second:
			return false
		case reads || now-began <= second:
			active++
		}
		recent++
		return true
	}
	for _, h := range s.byNum {
		if count(h.began.Load(), h.pending.Load() > 0) {
			counted[h.node.name.worker] = true
		}
	}
	for w, began := range s.read.last {
		if now-began > 60*second {
			delete(s.read.last, w)
		} else if !counted[w] {
			count(began, false)
		}
	}
	return recent, active
}
