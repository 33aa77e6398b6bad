// Package terminal is the output of lsiofs' commands, for people and for programs.
//
// A UI knows where results go (stdout), where everything else goes (stderr), and whether
// --json asks for objects instead of sentences. Helpers make the texts: tables, bars,
// progress lines, numbers with units, words quoted for a shell. Names that come from
// datasets are escaped, so that they can't control a terminal (package printable).
//
// The package knows nothing of datasets, mounts and exit codes.
package terminal
