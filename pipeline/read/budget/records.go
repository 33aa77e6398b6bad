package budget

import "github.com/lsiofs/lsiofs/pipeline/meter"

// Records is records that are pinned in a reader's memory: valid, and read-only, until Release. It
// is reused without allocation. The zero value is ready. It is not for concurrent use.
type Records struct {
	Records [][]byte
	// Waiter, if set, is charged for what Read waits for.
	Waiter *meter.Waiter
	// Again means that some of the records may have been returned to this reader before, and are
	// asked for once more, while no other pass over the data has begun.
	Again bool
	// Lender is for records that are not in pinned memory. It is set by the first reader that has
	// any, and stays for its next call.
	Lender Lender

	pins []*Pins // each pinned once
}

// Lender is the part of a Records that belongs to its reader. Its methods are those of Records; if
// it is nil, all records are in pinned memory.
type Lender interface {
	Mapped() bool
	Leased() bool
	Check() error
	Fault() error
	// Release releases everything that Hold and Keep were not called for.
	Release()
}

// Release unpins all records and empties l.
func (l *Records) Release() {
	for i, p := range l.pins {
		p.Unpin()
		l.pins[i] = nil
	}
	if l.Lender != nil {
		l.Lender.Release()
	}
	clear(l.Records)
	l.pins, l.Records = l.pins[:0], l.Records[:0]
}

// Mapped reports whether some of the records are in mapped files. The caller must call Leased
// before it copies such bytes, copy them on a goroutine that has set debug.SetPanicOnFault and
// recovers (truncating a file removes its pages), and pass them on only after Check. They must
// never be passed on in place.
func (l *Records) Mapped() bool { return l.Lender != nil && l.Lender.Mapped() }

// Leased reports whether all files of the mapped records have leases. If so, they are only altered
// after a break, which Check would detect.
func (l *Records) Leased() bool { return l.Lender == nil || l.Lender.Leased() }

// Check reports whether what was copied from the records so far is what was indexed: nil, or the
// error that Read would return. If that is not certain, it checks each mapped file of the records
// once.
func (l *Records) Check() error {
	if l.Lender == nil {
		return nil
	}
	return l.Lender.Check()
}

// Fault returns the error to report after copying from the records has faulted (SIGBUS recovered),
// which names a shard; it also makes the reader stop using that shard's mapping.
func (l *Records) Fault() error {
	if l.Lender == nil {
		return nil
	}
	return l.Lender.Fault()
}

// Pinned returns how many stretches of memory l pins. It is for readers, as are Hold and Keep.
func (l *Records) Pinned() int { return len(l.pins) }

// Hold pins memory until Release, unless a stretch from the from-th on is a pin of it already. It
// returns false if the memory is dead, or if limit stretches from the from-th on are pinned.
func (l *Records) Hold(p *Pins, from, limit int) bool {
	for i := len(l.pins) - 1; i >= from; i-- {
		if l.pins[i] == p {
			return true
		}
	}
	if len(l.pins)-from >= limit || !p.Pin() {
		return false
	}
	l.pins = append(l.pins, p)
	return true
}

// Keep takes over a pin of the caller, which Release will unpin.
func (l *Records) Keep(p *Pins) { l.pins = append(l.pins, p) }
