// Package plan turns wanted ranges of many objects into the reads to issue. It
// is pure: it does no reads, knows no files, and looks at no clock. The same
// request always gives the same plan.
//
// # What becomes of ranges
//
//	want     ├──0──┤  ├─1─┤    ├───2───┤       ├───────────3────────────┤
//	             ├─4─┤
//	have                       ╞══╡
//	to read  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓        ▓▓▓▓▓       ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
//	reads    ├────────────0────────────┤       ├───1───┤├───2───┤├──3───┤
//	                       └─ gap ┘                     ↑ cut    ↑ cut
//
// What the cache has is left out. Bytes that several ranges want are read once.
// What is left is merged across gaps of up to MergeGapBytes (for so few bytes a
// request of their own costs more), as long as a read stays within MaxReadBytes.
// A range larger than MaxReadBytes is cut into reads of about equal size,
// so that they can be under way at the same time; smaller ones are never cut, so
// each of them comes from one read (but for what overlaps: ranges that overlap
// are one range here). Reads are in the order of their objects' numbers and
// offsets, which is the order that devices like.
//
// # How bytes get to where they are wanted
//
// Each byte of a wanted range either is in Have, and then the caller takes it
// from there, or is in exactly one Part of the range: so many bytes of a read,
// from somewhere in the read to somewhere in the range. There are two ways to
// use them:
//
//	one buffer a read                         a buffer a range (readv)
//
//	read 0  ▓▓▓▓▓▓░░▓▓▓▓                      Vectors: ▓▓▓▓ ─► range 0
//	        └─0─┘    └1┘                               ▓▓   ─► range 4
//	         └─4─┘                                     ░░   ─► nowhere (a gap)
//	Parts: where in the read                           ▓▓▓▓ ─► range 1
//	each range's bytes lie                    Copies:  range 0 ─► range 4
//
// Progress counts down the reads, and tells which ranges are complete with each.
package plan
