// Package demo shows on a small dataset what lsiofs does: mount, read, save a
// checkpoint, go on with other workers; then it checks that every record came once. It
// is the work of the verb demo.
package demo
