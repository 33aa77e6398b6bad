// Package demo does the work of the verb demo. On a small dataset it shows what lsiofs does: mount,
// read, save a checkpoint, resume with another number of workers. Then it checks that every record
// was delivered exactly once.
package demo
