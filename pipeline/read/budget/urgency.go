package budget

import "errors"

// Urgency determines what may be done to find memory.
type Urgency int

const (
	Opportunistic Urgency = iota // stay within the budget, and drop only what was delivered
	Prefetch                     // stay within the budget
	Demand                       // a reader waits: stay within the budget if possible
)

// ErrNoRoom means that there is no memory to read ahead. No reader sees it: one that waits always
// gets memory.
var ErrNoRoom = errors.New("no memory to read ahead")

// ErrClosed ends loads when their fetcher is closed.
var ErrClosed = errors.New("the fetcher is closed")
