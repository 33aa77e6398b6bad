// Package plan turns wanted byte ranges of many objects into the reads to issue. It is
// pure: it reads nothing, knows no files and looks at no clock. The same request always
// gives the same plan.
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
//  1. What the cache has (Have) is left out. Bytes wanted by several ranges are read once.
//  2. The rest is merged across gaps of up to MergeGapBytes, while a read stays within
//     MaxReadBytes: a further request costs more than so few bytes.
//  3. A range larger than MaxReadBytes is cut into reads of about equal size, which can
//     be in flight together. Smaller ranges are never cut, so each comes from one read.
//     Ranges that overlap count as one range here.
//
// Reads are sorted by object number and offset, the order that devices are fastest in.
//
// # How bytes get to their ranges
//
// Each byte of a wanted range either is in Have, where the caller has it already, or is
// in exactly one Part. A Part maps bytes of a read to a place in a range. There are two
// ways to use the parts:
//
//	one buffer a read                         a buffer a range (readv)
//
//	read 0  ▓▓▓▓▓▓░░▓▓▓▓                      Vectors: ▓▓▓▓ ─► range 0
//	        └─0─┘    └1┘                               ▓▓   ─► range 4
//	         └─4─┘                                     ░░   ─► nowhere (a gap)
//	Parts: where in the read                           ▓▓▓▓ ─► range 1
//	each range's bytes lie                    Copies:  range 0 ─► range 4
//
// Progress counts the reads that are still missing, and tells which ranges each read
// completes.
package plan
