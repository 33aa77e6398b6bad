// Package formattest is the test suite that every format passes, with every codec: Suite.Run. A
// format provides intact shards, a way to draw random ones, and a deliberately naive parser of
// whole files for comparison.
//
//	random or damaged shard ──┬──► the format's index pass ──┬──► equal records, or both refuse
//	                          └──► naive parser ─────────────┘
package formattest
