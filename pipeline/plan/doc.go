// Package plan turns wanted byte ranges of many objects into the reads to issue. It is pure: it
// does no I/O, is independent of files, and reads no clock. The same request always results in the
// same plan.
//
// # From ranges to reads
//
//	want     ├──0──┤  ├─1─┤    ├───2───┤       ├───────────3────────────┤
//	             ├─4─┤
//	have                       ╞══╡
//	to read  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓        ▓▓▓▓▓       ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
//	reads    ├────────────0────────────┤       ├───1───┤├───2───┤├──3───┤
//	                       └─ gap ┘                     ↑ cut    ↑ cut
//
// Three rules lead from the ranges to the reads:
//
//  1. Bytes that the cache has (Have) are left out. Bytes wanted by several ranges are read once.
//  2. The rest is merged across gaps of up to MergeGapBytes, while a read stays within
//     MaxReadBytes: another request would cost more than these few bytes.
//  3. A range larger than MaxReadBytes is cut into reads of about equal size, which can
//     be in flight together. Smaller ranges are never cut, so each comes from one read.
//     Overlapping ranges count as one range here.
//
// Reads are sorted by object number and offset, the order in which devices are fastest.
//
// # How bytes get to their ranges
//
// Each byte of a wanted range is either in Have, and thus already available to the caller, or in
// exactly one Part. A Part maps bytes of a read to a position in a range. There are two ways to use
// the parts:
//
//	one buffer per read                       a buffer per range (readv)
//
//	read 0  ▓▓▓▓▓▓░░▓▓▓▓                      Vectors: ▓▓▓▓ ─► range 0
//	        └─0─┘    └1┘                               ▓▓   ─► range 4
//	         └─4─┘                                     ░░   ─► nowhere (a gap)
//	Parts: where in the read                           ▓▓▓▓ ─► range 1
//	each range's bytes are                    Copies:  range 0 ─► range 4
//
// Progress counts the reads that are still missing, and returns the ranges that each read
// completes.
package plan
