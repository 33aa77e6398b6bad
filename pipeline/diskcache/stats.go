package diskcache

// Stats is a snapshot for status.
type Stats struct {
	Dir        string  `json:"dir"`
	State      string  `json:"state"`            // on; full: nothing is added for a while; off: not used by this mount any more
	Reason     string  `json:"reason,omitempty"` // why it is not on
	Bytes      int64   `json:"bytes"`            // on the disk, of all objects of all processes; by what is known
	Bound      int64   `json:"bound"`            // what they may take
	ShareBytes int64   `json:"share_bytes"`      // of these, what passes through, of this mount
	Hits       uint64  `json:"hits"`             // pages that were read from the cache
	Misses     uint64  `json:"misses"`           // pages that were wanted and not there
	BadPages   uint64  `json:"bad_pages"`        // of these, pages that did not match their sums
	Written    uint64  `json:"written"`          // pages
	Unwritten  int64   `json:"unwritten_bytes"`  // that have come and wait for the disk
	Reads      uint64  `json:"reads"`            // of the storage below
	Fill       float64 `json:"fill"`             // of what is to be filled, 0…1
	Sealed     int     `json:"sealed_objects"`   // that are whole, checked, and read like local files
}

// Stats gives a snapshot.
func (s *Storage) Stats() Stats {
	used, shared, _ := s.room.usage()
	state, reason := s.health.state()
	return Stats{
		Dir: s.dir.path, State: state, Reason: reason,
		Bytes: used, Bound: s.room.boundBytes(), ShareBytes: shared,
		Hits: s.counts.hits.Load(), Misses: s.counts.misses.Load(), BadPages: s.counts.bad.Load(),
		Written: s.counts.written.Load(), Unwritten: s.unwritten.Load(), Reads: s.counts.reads.Load(), Fill: s.ahead.filled(), Sealed: s.seals.count(),
	}
}

// SetBound says how much the directory may take from now on. What it holds beyond that
// stays, but for objects that nobody uses.
func (s *Storage) SetBound(bytes int64) { s.room.setBound(bytes) }
