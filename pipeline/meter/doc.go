// Package meter counts where the time of a dataset's readers goes: what each
// stage does, and how long readers wait for it. It gives counters that only grow;
// package explain turns the differences of two of them into shares and words.
//
//	index ──► order ──► storage ──► decompress ──► gather ──► copy ──► fuse
//	                       ▲             ▲            ▲
//	                       └── a reader is in one of them, waits, or works for itself
//
// # What is counted
//
//   - Busy time of a stage: the sum over the goroutines that are at work in it, so
//     that two cores that decompress for a second are two seconds. Of storage it
//     is the time in which any read is under way, however many there are.
//   - Waits: how long readers' requests have waited for a stage. Whoever waits for
//     a goroutine that itself waits (for a decoder that waits for the disk) waits
//     for what that one waits for: see Ledger.
//   - Queued: how much is in a stage now, to be looked at now and then.
//
// # Cost
//
// Clocks are read for a reply, a piece, a block of compressed bytes: never for a
// record. What a reply needs is two additions; locks, for a few more, are taken
// by those alone who wait anyhow, or begin or end to work in a stage. Nothing is
// allocated but the list of those who wait at one time.
package meter
