// Package growing decides, for a dataset that shards arrive in and leave, which files are
// shards by now and which shards the next epoch is of. It is pure: it knows files by what
// a look at them says, and reads nothing.
//
//	looks at files ──Settling──► files that nobody is writing any more
//	settled shards ──Newest──► newest first ──Window──► the shards of the next epoch
//	these, and those of the epoch before ──News, Pace──► is it time for it?
//
// What is newest follows from names or times alone, never from when a file was seen, and
// a window from the shards and itself: so two nodes that see the same files choose the
// same shards.
package growing
