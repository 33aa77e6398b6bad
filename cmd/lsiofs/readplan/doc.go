// Package readplan says what the next records of a stream would read: how many reads
// of which sizes, by each way of reading that is possible. It is the work of the verb
// plan. No shard is read.
package readplan
