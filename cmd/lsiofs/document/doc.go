// Package document writes the output of a command, such as a page or a report, to stdout
// or atomically to a file.
package document
