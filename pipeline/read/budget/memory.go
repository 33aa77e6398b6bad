package budget

import "sync/atomic"

// Memory is a stretch of bytes outside of the Go heap that holds records, with the count of its
// users, and of the bytes that are still to be delivered.
type Memory struct {
	Bytes []byte // may be touched only while pinned
	Pins  Pins
	Live  atomic.Int64 // bytes of undelivered records
}
