// Package readplan does the work of the verb plan. It predicts what the next records of a stream
// would read: how many reads of which sizes, for each possible strategy. It reads no shard.
package readplan
