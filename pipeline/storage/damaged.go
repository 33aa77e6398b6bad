package storage

// Damage is a damaged place of a shard. Record, OffsetBytes (in the decoded shard) and RawOffset
// (of the damaged member, in the file) are -1 where there is none.
type Damage struct {
	Shard                          string
	Record, OffsetBytes, RawOffset int64
	Reason                         string
}

// MaxDamages is how many places a DamagedError has at most.
const MaxDamages = 1000

// DamagedError refuses a dataset of which nothing is left without what is damaged. The catalog
// fills in Dataset and Format, and a mixture the name of the source.
type DamagedError struct {
	Source  string // "" where the dataset is no mixture
	Dataset string
	Format  string
	Shards  int
	Damages []Damage // at most MaxDamages, at least one
	Total   uint64   // all of them
	Err     error    // the text, which names one of them
}

func (e *DamagedError) Error() string { return e.Err.Error() }
func (e *DamagedError) Unwrap() error { return e.Err }
