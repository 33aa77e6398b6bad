// Package document writes what a command has made for its user, a page or a report:
// to a file, whole or not at all, or to stdout.
package document
