package diskcache

// Stats is a snapshot for status.
type Stats struct {
	Dir        string  `json:"dir"`
	State      string  `json:"state"`            // on; full: nothing is added for a while; off: not used by this mount any more
	Reason     string  `json:"reason,omitempty"` // why it is not on
	Bytes      int64   `json:"bytes"`            // on the disk, all objects of all processes, as far as is known
	Bound      int64   `json:"bound"`            // the most that they may take
	ShareBytes int64   `json:"share_bytes"`      // the part for what passes through, of this mount
	Hits       uint64  `json:"hits"`             // pages that were read from the cache
	Misses     uint64  `json:"misses"`           // pages that were wanted and missing
	BadPages   uint64  `json:"bad_pages"`        // the part of these that did not match their sums
	Written    uint64  `json:"written"`          // pages
	Unwritten  int64   `json:"unwritten_bytes"`  // have arrived and wait for the disk
	Reads      uint64  `json:"reads"`            // by the storage below
	Fill       float64 `json:"fill"`             // fraction of what is to be filled
	Sealed     int     `json:"sealed_objects"`   // complete, checked, and read like local files
}

// Stats returns a snapshot.
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

// SetBound sets how much the directory may take from now on. What it holds beyond that stays,
// except objects that no mount uses.
func (s *Storage) SetBound(bytes int64) { s.room.setBound(bytes) }
