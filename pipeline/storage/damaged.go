package storage

// Damage is a damaged place in a shard. Record, OffsetBytes (in the decoded shard) and RawOffset
// (in the file, of the damaged member) are -1 if they don't apply.
type Damage struct {
	Shard                          string
	Record, OffsetBytes, RawOffset int64
	Reason                         string
}

// MaxDamages is the most places that a DamagedError lists.
const MaxDamages = 1000

// DamagedError rejects a dataset of which nothing would be left without the damaged parts. The
// catalog fills in Dataset and Format; a mixture fills in the name of the source.
type DamagedError struct {
	Source  string // "" if the dataset is not a mixture
	Dataset string
	Format  string
	Shards  int
	Damages []Damage // at most MaxDamages, at least one
	Total   uint64   // including those not listed
	Err     error    // the text, which names one of them
}

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }
