package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
)

// lending is what a Reader keeps in a pinned.Records. It is reused with it.
type lending struct {
	mapped.Lent
	numbers []uint64
	found   []found
}

var _ pinned.Lender = (*lending)(nil)

// lendingOf returns the lending of l, which it makes if there is none.
func lendingOf(l *pinned.Records) *lending {
	own, ok := l.Lender.(*lending)
	if !ok {
		own = new(lending)
		l.Lender = own
	}
	return own
}

// found is a record that is in memory.
type found struct {
	entry *entry
	index int
}
