package budget

import "errors"

// Urgency says what may be done to find memory.
type Urgency int

const (
	Opportunistic Urgency = iota // stay within the budget, and drop nothing that has not gone out
	Prefetch                     // stay within the budget
	Demand                       // a reader waits: stay within the budget if possible
)

// ErrNoRoom says that there is no memory to read ahead. No reader gets to see it: who
// waits gets memory always.
var ErrNoRoom = errors.New("no memory to read ahead")

// ErrClosed ends what was to be brought when its fetcher is closed.
var ErrClosed = errors.New("the fetcher is closed")
