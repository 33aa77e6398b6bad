package mapped

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Lent are the records of regions that a loan has, each with a pin. The zero value
// has none; one that is used again allocates nothing. It is not for concurrent use.
//
// Bytes of such records are right if nobody can have altered them before they were
// copied:
//
//	Add …        the records, pinned
//	Leased       before anything is copied
//	Faulted(…)   copy
//	Check        nil: what was copied is what was indexed
//	Fault        instead, where the copy faulted
type Lent struct {
	records []lentRecord
	asked   asked
	leased  bool   // Leased has said yes, of all there are
	breaks  uint64 // Leaser.Breaks at that time
}

type lentRecord struct {
	region *Region
	index  int // of the record in its piece
}

// asked are shards that were looked at already. Where there are records of more than
// fit, some are looked at twice.
type asked [128]*shard

// first says whether a shard was not asked yet.
func (a *asked) first(s *shard) bool {
	slot := &a[s.number%len(a)]
	if *slot == s {
		return false
	}
	*slot = s
	return true
}

// Add takes over a pin of a region, for a record of it, counted from the piece's
// first.
func (l *Lent) Add(r *Region, record int) {
	l.records = append(l.records, lentRecord{r, record})
	l.leased = false // this one's file was not asked
}

// Mapped says whether there are any.
func (l *Lent) Mapped() bool { return len(l.records) > 0 }

// Len is how many records there are.
func (l *Lent) Len() int { return len(l.records) }

// Release gives the pins back, and empties l.
func (l *Lent) Release() {
	for _, x := range l.records {
		x.region.Pins.Unpin()
	}
	clear(l.records)
	l.records = l.records[:0]
}

// Leased says whether all files of the records have leases. Then nobody alters them
// but after a break, which Check would know of: breaks are counted before any lease is
// asked about.
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

// maps are those of the records, of which there are some.
func (l *Lent) maps() *Maps { return l.records[0].region.of.maps }

// Check says whether what was copied of the records so far is what was indexed: nil,
// or the error that Owner.Lost gives. Where it is not certain, as leases may have been
// lost meanwhile, or never were, it looks at each file once.
func (l *Lent) Check() error {
	if len(l.records) == 0 || l.leased && l.maps().config.Mapper.Unbroken(l.breaks) {
		return nil
	}
	defer clear(l.asked[:])
	var again error // of copies: all that are lost are told of at once
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

// Fault gives the error to report when copying from the records faulted. nil means
// that there are none.
func (l *Lent) Fault() error {
	if err := l.Check(); err != nil || len(l.records) == 0 {
		return err
	}
	// Which it was is not known: none of the pieces stays mapped.
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

// lost gives the error to report for a record of which err is known, after which its
// piece, or, if the shard has changed, none of the shard, is mapped any more. (One of which a
// copy has gone may be mapped anew.)
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
