// Package terminal is the output of lsiofs' commands, for people and for programs.
//
// A UI writes results to stdout and everything else to stderr, as sentences or, with --json, as
// objects. Helpers format the texts: tables, bars, progress lines, numbers with units, words quoted
// for a shell. Names that come from datasets are escaped, so that they can't control a terminal
// (package printable).
//
// The package does not depend on datasets, mounts or exit codes.
package terminal
