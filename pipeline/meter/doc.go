// Package meter measures where the time of a dataset's readers goes: how long each stage works, and
// how long readers wait for it. Its counters only grow. Package explain turns the differences
// between two points in time into shares and text.
//
//	index ──► order ──► storage ──► decompress ──► gather ──► copy ──► fuse
//	                       ▲             ▲            ▲
//	                       └── a reader waits in one of them, or works itself
//
// # What is counted
//
//   - Busy time of a stage: the sum over the goroutines working in it, so two cores that
//     decompress for a second count two seconds. For storage it is the time in which at
//     least one read is in flight.
//   - Waits: how long readers' requests have waited for a stage. A wait for a goroutine
//     that itself waits is charged to the stage that this goroutine waits for. For
//     example, waiting for a decoder that waits for the disk is waiting for storage: see
//     WaitClock.
//   - Queued: how much is in a stage now. It is sampled from time to time.
//
// # Cost
//
// Clocks are read for each reply, piece or block of compressed bytes, never for each record. A
// reply costs two additions. Locks are held for a few more additions, and only by goroutines that
// wait anyway, or that begin or end work in a stage. Nothing is allocated except the list of the
// concurrent waits.
package meter
