// Package readplan does the work of the verb plan. It says what the next records of a
// stream would read: how many reads of which sizes, for each strategy that is possible.
// It reads no shard.
package readplan
