package budget

import "errors"

// Urgency says what may be done to find memory.
type Urgency int

const (
	InPassing Urgency = iota // stay within the budget, and drop nothing that has not gone out
	Ahead                    // stay within the budget
	Demanded                 // a reader waits: stay within the budget if possible
)

// ErrNoRoom says that there is no memory to read ahead. No reader gets to see it: who
// waits gets memory always.
var ErrNoRoom = errors.New("no memory to read ahead")

// ErrClosed ends what was to be brought when its fetcher is closed.
var ErrClosed = errors.New("the fetcher is closed")
