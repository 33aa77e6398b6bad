// Package growing decides, for a dataset whose shards change, which shards the next epoch has. It is
// pure: it works on what a catalog.LiveIndex knows of the shards, and reads nothing.
//
//	shards ──Newest──► newest first ──Window──► the shards of the next epoch
//	these, and those of the epoch before ──catalog.NewsOf, Amount──► may it start?
//
// Which shards are newest depends only on names or times, never on when a file was seen, and a
// window only on the shards and its setting: so two nodes that see the same files choose the same
// shards.
package growing
