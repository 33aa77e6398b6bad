// Package terminal is how commands of lsiofs talk to people and to programs.
//
// A UI knows where results go (stdout), where everything else goes (stderr), and
// whether --json asks for objects instead of sentences. Beside it are what texts are
// made of: tables, bars, lines that show progress, numbers with units, words quoted
// for a shell. Names that come from datasets are written so that a terminal acts on
// none of them (package printable).
//
// The package knows nothing of datasets, mounts and exit codes.
package terminal
