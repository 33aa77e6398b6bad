// Package size looks at a dataset once, before anything of it is read: how it is cut
// into pieces, what it takes to hold these in memory, and what each use of the memory may
// take.
//
//	catalog ──┐              ┌──► Places: pieces, and where they lie
//	part    ──┼──► Survey ───┼──► Held, Limits: memory
//	settings ─┘              └──► Sizes ──► package choose, which chooses
//
// It goes through all shards and pieces, and is a pure function of them and of the
// settings. A Survey is immutable.
package size
