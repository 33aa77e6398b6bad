package pinned

import (
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// Records is bytes lent to a caller: valid, and not to be written to, until
// Release. A Records is reused without allocation. The zero value is ready. It is used
// by one goroutine at a time.
type Records struct {
	Records [][]byte
	// Waiter, when set, books what Read waits for.
	Waiter *meter.Waiter
	// Again says that some of the records may have been lent to this reader before, and
	// are asked for once more: no other pass over the data has begun.
	Again bool
	// Lender is what a reader that lends more than pinned memory has in the loan. It
	// is set by the first that does, and stays for its next call.
	Lender Lender

	pins []*budget.Pins // each pinned once
}

// Lender is a reader's own part of a loan. Its methods are those of Records; where a
// loan has none, all its records are pinned memory.
type Lender interface {
	Mapped() bool
	Leased() bool
	Check() error
	Fault() error
	// Release gives back what Hold and Keep have not been told of.
	Release()
}

// Release gives everything back and empties l.
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

// Mapped says that some of the loan's records lie in mapped files. Before such bytes
// are copied Leased is asked. They are copied by a goroutine that has set
// debug.SetPanicOnFault and recovers (a file that is truncated takes its pages
// away), and only given on after Check. They are never handed on as they lie.
func (l *Records) Mapped() bool { return l.Lender != nil && l.Lender.Mapped() }

// Leased says whether all files of the loan's mapped records have leases. Then
// nobody alters them but after a break, which Check would know of.
func (l *Records) Leased() bool { return l.Lender == nil || l.Lender.Leased() }

// Check says whether what was copied from the loan's records so far is what was
// indexed: nil, or the error that Read would give. Where it is not certain, it
// looks at each mapped file of the loan once.
func (l *Records) Check() error {
	if l.Lender == nil {
		return nil
	}
	return l.Lender.Check()
}

// Fault gives the error to report when copying from the loan faulted (SIGBUS
// recovered), naming a shard; it also makes the reader stop using that shard's
// mapping.
func (l *Records) Fault() error {
	if l.Lender == nil {
		return nil
	}
	return l.Lender.Fault()
}

// Pinned is how many stretches of memory the loan pins. It is for readers, as are
// Hold and Keep.
func (l *Records) Pinned() int { return len(l.pins) }

// Hold pins memory until Release, unless that would make more than limit of those
// that were pinned from the from-th on, or it is dead: then it says no.
func (l *Records) Hold(p *budget.Pins, from, limit int) bool {
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

// Keep takes over a pin of the caller's: Release takes it back.
func (l *Records) Keep(p *budget.Pins) { l.pins = append(l.pins, p) }
