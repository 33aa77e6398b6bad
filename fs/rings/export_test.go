package rings

// WorkersOf returns the number of threads of one of n processors.
func WorkersOf(n int) int { return workersOf(n) }

// UnderWay returns the numbers of the requests that are being answered.
func (r *Server) UnderWay() []uint64 { return r.rings.UnderWay() }

// Kept returns approximately how much memory for replies is kept, and the bound.
func (r *Server) Kept() (bytes, most int64) { return r.rings.kept.Load(), r.rings.keptMost }
