// Package filtering shows the progress of lsiofs filter: a bar, what the filter writes to stderr,
// and a summary at the end.
package filtering
