package mapped

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Lent is the mapped records in a pinned.Records, each with a pin. The zero value has none; a
// reused one allocates nothing. It is not for concurrent use.
//
// Bytes of such records are right if nothing can have altered them before they were copied:
//
//	Add …        the records, pinned
//	Leased       before anything is copied
//	Faulted(…)   copy
//	Check        nil: what was copied is what was indexed
//	Fault        instead, if the copy faulted
type Lent struct {
	records []lentRecord
	asked   asked
	leased  bool   // Leased has returned true, for all records
	breaks  uint64 // Leaser.Breaks at that time
}

type lentRecord struct {
	region *Region
	index  int // of the record in its piece
}

// asked is the shards that were checked already. If there are more than fit, some are checked
// twice.
type asked [128]*shard

// first reports whether a shard was not checked yet.
func (a *asked) first(s *shard) bool {
	slot := &a[s.number%len(a)]
	if *slot == s {
		return false
	}
	*slot = s
	return true
}

// Add takes over a pin of a region, for the record with that index in the piece.
func (l *Lent) Add(r *Region, record int) {
	l.records = append(l.records, lentRecord{r, record})
	l.leased = false // this one's file was not checked
}

// Mapped reports whether there are any records.
func (l *Lent) Mapped() bool { return len(l.records) > 0 }

// Len returns how many records there are.
func (l *Lent) Len() int { return len(l.records) }

// Release unpins the records, and empties l.
func (l *Lent) Release() {
	for _, x := range l.records {
		x.region.Pins.Unpin()
	}
	clear(l.records)
	l.records = l.records[:0]
}

// Leased reports whether all files of the records have leases. If so, they are only altered after a
// break, which Check would detect: breaks are counted before leases are checked.
func (l *Lent) Leased() bool {
	l.leased = false
	if len(l.records) == 0 {
		return true
	}
	l.breaks = l.maps().config.Mapper.Breaks()
	defer clear(l.asked[:])
	for _, x := range l.records {
		if s := x.region.of; l.asked.first(s) && !s.mapping.Leased() {
			return false
		}
	}
	l.leased = true
	return true
}

// maps returns the Maps of the records; there must be some.
func (l *Lent) maps() *Maps { return l.records[0].region.of.maps }

// Check returns nil if what was copied from the records so far is what was indexed, else the error
// of Owner.Lost. If that is not certain, because leases may have been lost meanwhile, or never
// existed, it checks each file once.
func (l *Lent) Check() error {
	if len(l.records) == 0 || l.leased && l.maps().config.Mapper.Unbroken(l.breaks) {
		return nil
	}
	defer clear(l.asked[:])
	var again error // of copies: all lost ones are handled at once
	for _, x := range l.records {
		if s := x.region.of; l.asked.first(s) {
			err := s.mapping.Check()
			switch {
			case err == nil:
			case errors.Is(err, storage.ErrReadAgain):
				again = x.lost(err)
			default:
				return x.lost(err)
			}
		}
	}
	return again
}

// Fault returns the error to report after copying from the records has faulted, nil if there are no
// records.
func (l *Lent) Fault() error {
	if err := l.Check(); err != nil || len(l.records) == 0 {
		return err
	}
	// It is not known which record it was: none of the pieces stays mapped.
	regions := make([]*Region, len(l.records))
	for i, x := range l.records {
		regions[i] = x.region
	}
	l.maps().forget(regions)
	x := l.records[0]
	err := x.region.of.mapping.Check()
	if err == nil {
		err = x.region.fault()
	}
	return x.lost(err)
}

// lost returns the error to report for a record whose error is err. After that its piece is no
// longer mapped or, if the shard has changed, nothing of the shard. (A shard of which a copy is
// gone may be mapped again.)
func (x lentRecord) lost(err error) error {
	s := x.region.of
	again := errors.Is(err, storage.ErrReadAgain)
	s.maps.distrust(s, err)
	s.maps.forget([]*Region{x.region})
	if again {
		return err // nothing is wrong with the record
	}
	return s.maps.owner.Lost(x.region.piece, x.index, err)
}
