// Package growing decides, for a dataset whose shards change, which files are complete shards and
// which shards the next epoch has. It is pure: it works on file attributes that the caller
// observed, and reads nothing.
//
//	looks at files ──Settling──► files that no process writes any more
//	settled shards ──Newest──► newest first ──Window──► the shards of the next epoch
//	these, and those of the epoch before ──News, Amount──► may it start?
//
// Which shards are newest depends only on names or times, never on when a file was seen, and a
// window only on the shards and its setting: so two nodes that see the same files choose the same
// shards.
package growing
