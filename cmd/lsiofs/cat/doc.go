// Package cat does the work of the verb cat. It writes a stream to stdout as fast as possible: with
// writev, directly from the memory that holds the records.
package cat
