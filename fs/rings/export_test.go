package rings

// WorkersOf are the threads of a processor of n.
func WorkersOf(n int) int { return workersOf(n) }

// UnderWay are the numbers of the requests that are being answered.
func (r *Server) UnderWay() []uint64 { return r.rings.UnderWay() }

// Kept is how much memory of replies there may be, and how much is kept, about.
func (r *Server) Kept() (bytes, most int64) { return r.rings.kept.Load(), r.rings.keptMost }
