// Package meter counts where the time of a dataset's readers goes: how long each stage
// works, and how long readers wait for it. Its counters only grow. Package explain turns
// the differences between two times into shares and words.
//
//	index ──► order ──► storage ──► decompress ──► gather ──► copy ──► fuse
//	                       ▲             ▲            ▲
//	                       └── a reader is in one of them, waits, or works for itself
//
// # What is counted
//
//   - Busy time of a stage: the sum over the goroutines at work in it, so two cores that
//     decompress for a second count two seconds. For storage it is the time in which at
//     least one read is in flight.
//   - Waits: how long readers' requests have waited for a stage. A wait for a goroutine
//     that itself waits is booked under the stage that this goroutine waits for. For
//     example, waiting for a decoder that waits for the disk is waiting for storage: see
//     Ledger.
//   - Queued: how much is in a stage now. It is sampled now and then.
//
// # Cost
//
// Clocks are read for each reply, piece or block of compressed bytes, never for each
// record. A reply costs two additions. Locks are taken for a few more additions, and
// only by goroutines that wait anyway, or that begin or end work in a stage. Nothing is
// allocated but the list of the waits that go on at one time.
package meter
