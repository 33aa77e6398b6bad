package fetch

import "github.com/lsiofs/lsiofs/pipeline/meter"

// Loan is bytes lent to a caller: valid, and not to be written to, until
// Release. A Loan is reused without allocation.
type Loan struct {
	Records [][]byte
	// Waiter, when set, books what Lend waits for.
	Waiter *meter.Waiter

	f       *Fetcher
	segs    []*segment     // each pinned once
	mapped  []mappedRecord // each has a pin of its own
	checked checked
	leased  bool   // Leased has said yes
	breaks  uint64 // Leaser.Breaks at that time
	held    bool
	numbers []uint64
	found   []found
}

// found is a record that is in memory.
type found struct {
	entry *entry
	index int
}

// mappedRecord is a record of a piece that is mapped.
type mappedRecord struct {
	entry *entry
	index int
}

// checked are shards that one Check has asked about, or looked at. Where a loan
// has records of more than fit, it may do so twice.
type checked struct{ asked, looked checkedShards }

type checkedShards [128]*mappedShard

// Release gives everything back and empties l.
func (l *Loan) Release() {
	if l.held {
		l.f.maps.mapper.Unhold()
	}
	l.leased, l.held = false, false
	for i, s := range l.segs {
		s.unpin()
		l.segs[i] = nil
	}
	for _, x := range l.mapped {
		x.entry.seg.unpin()
	}
	clear(l.mapped)
	clear(l.Records)
	l.segs, l.mapped, l.Records = l.segs[:0], l.mapped[:0], l.Records[:0]
}

// Mapped says that some of the loan's records lie in mapped files. Such bytes
// are copied, by a goroutine that has set debug.SetPanicOnFault and recovers (a
// file that is truncated takes its pages away), and only given on after Check: a
// truncation shows the rest of its last page as zeros. They are handed on as they
// lie only where Leased says yes, and then Hold.
func (l *Loan) Mapped() bool { return len(l.mapped) > 0 }

// Leased says whether all records of the loan that lie in mapped files may be
// handed on as they lie, if Hold says yes when nothing more is to be waited for.
func (l *Loan) Leased() bool {
	l.breaks = l.f.maps.mapper.Breaks()
	l.leased = true
	for _, x := range l.mapped {
		s := x.entry.seg.shard
		if slot := &l.checked.asked[s.shard%len(l.checked.asked)]; *slot != s {
			*slot = s
			l.leased = l.leased && s.mapping.Lease()
		}
	}
	clear(l.checked.asked[:])
	return l.leased
}

// Lent counts records of mapped files that were handed on as they lie.
func (l *Loan) Lent(n int) { l.f.counts.recordsLent.Add(uint64(n)) }

// Hold says whether bytes of the loan that are handed on as they lie stay what
// they are until Release, which must be soon then: it may hold up who wants to
// write to a file. If it says no, all is to be copied.
func (l *Loan) Hold() bool {
	if l.leased && !l.held {
		l.held = l.f.maps.mapper.Hold(l.breaks)
	}
	return l.held || !l.leased
}

// Check says whether what was copied from the loan's records so far is what was
// indexed: nil, or the error that Lend would give. It looks at each mapped file
// of the loan once.
func (l *Loan) Check() error {
	if len(l.mapped) == 0 {
		return nil
	}
	defer func() { l.checked = checked{} }()
	// First what a truncation shows before anybody is told of it: when a file is
	// written anew after that, somebody has been.
	var err error
	at := 0
	// Where all had leases, and have them still, nothing was.
	leased := l.leased && l.f.maps.mapper.Breaks() == l.breaks
	if !leased && Faulted(func() {
		for ; at < len(l.mapped) && err == nil; at++ {
			if x := l.mapped[at]; !x.whole() {
				err = l.check(x, &l.checked.looked, 0)
			}
		}
	}) {
		return l.lost(l.mapped[at])
	}
	changes := l.f.maps.mapper.Changes()
	for at = 0; at < len(l.mapped) && err == nil; at++ {
		err = l.check(l.mapped[at], &l.checked.asked, changes)
	}
	return err
}

// check asks a record's mapping, unless it is among those that were asked.
func (l *Loan) check(x mappedRecord, asked *checkedShards, changes uint64) error {
	s := x.entry.seg.shard
	slot := &asked[s.shard%len(asked)]
	if *slot == s {
		return nil
	}
	*slot = s
	if err := s.mapping.Check(changes); err != nil {
		return l.f.lost(x, err)
	}
	return nil
}

// whole says that the record's bytes are not cut off: behind the end of a file
// that was truncated there are zeros up to the end of the page, and then no pages.
// It may fault.
func (x mappedRecord) whole() bool {
	seg, span := x.entry.seg, x.entry.spans[x.index]
	if span.size == 0 {
		return true
	}
	const page = 4096 // or more
	mem, end := seg.shard.mapping.Bytes(), seg.off+span.off+span.size
	return mem[end-1] != 0 || end%page != 0 && end < int64(len(mem)) && mem[end] != 0
}

// lost gives the error for a record whose memory is gone.
func (l *Loan) lost(x mappedRecord) error {
	err := x.entry.seg.shard.mapping.Check(0)
	if err == nil {
		err = l.f.fault(x.entry.seg)
	}
	return l.f.lost(x, err)
}

// Fault gives the error to report when copying from the loan faulted (SIGBUS
// recovered), naming a shard; it also makes the fetcher stop using that shard's
// mapping.
func (l *Loan) Fault() error {
	if err := l.Check(); err != nil || len(l.mapped) == 0 {
		return err
	}
	// Which it was is not known: none of the pieces stays mapped.
	l.f.mu.Lock()
	for _, x := range l.mapped {
		l.f.forget(x.entry)
	}
	l.f.mu.Unlock()
	return l.lost(l.mapped[0])
}

// hold pins a segment, unless that would make more than limit of those that
// were pinned from index from on, or the segment is dead.
func (l *Loan) hold(s *segment, from, limit int) bool {
	for i := len(l.segs) - 1; i >= from; i-- {
		if l.segs[i] == s {
			return true
		}
	}
	if len(l.segs)-from >= limit || !s.pin() {
		return false
	}
	l.segs = append(l.segs, s)
	return true
}
