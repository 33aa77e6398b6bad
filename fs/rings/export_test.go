package rings

// KeptMost is how much memory of replies is kept, about.
const KeptMost = keptBytes

// UnderWay are the numbers of the requests that are being answered.
func (r *Server) UnderWay() []uint64 { return r.rings.UnderWay() }

// KeptBytes is how much memory of replies there may be.
func (r *Server) KeptBytes() int64 { return r.rings.kept.Load() }
