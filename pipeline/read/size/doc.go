// Package size surveys a dataset before it is read: how it is cut into pieces, what it takes to
// hold these in memory, and what each use of the memory may take.
//
//	catalog ──┐              ┌──► Places: pieces, and where they are
//	part    ──┼──► Survey ───┼──► Held, Limits: memory
//	settings ─┘              └──► Sizes ──► package choose, which chooses
//
// It visits all shards and pieces, and is a pure function of them and of the settings. A Survey is
// immutable.
package size
