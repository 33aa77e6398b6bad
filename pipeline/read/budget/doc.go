// Package budget is the memory that records are kept in: what is charged to the one
// number that --memory gives, and who may have more of it.
//
// Bytes of records lie outside of the Go heap (Memory). Who lends them pins them
// (Pins), so that nobody gives them back meanwhile. Urgency says what may be done to find memory:
// what is read ahead gets none beyond the budget, a reader that waits always does, so
// that nothing can wait in a circle. Blocks are memory of one size, for readers that
// gather; what a scan holds lies in segments.
//
// Shared is one budget of several fetchers, of which each has a Share that becomes smaller
// and larger as they are opened, read, and left alone.
package budget
