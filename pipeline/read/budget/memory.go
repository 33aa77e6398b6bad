package budget

import "sync/atomic"

// Memory is a stretch of bytes outside of the Go heap that records are lent from: who
// uses it, and how much of it is still to go out.
type Memory struct {
	Bytes []byte // to be touched by who has pinned them
	Pins  Pins
	Live  atomic.Int64 // bytes of records that have not gone out
}
