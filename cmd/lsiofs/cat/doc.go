// Package cat writes a stream to stdout as fast as it comes: with writev, from the
// memory where the records lie. It is the work of the verb cat.
package cat
