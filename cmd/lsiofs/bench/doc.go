// Package bench does the work of the verb bench: it measures a dataset, at a disk or at a service,
// against the limits of the machine. Command prints the results; everything else measures. What is
// exported besides Command is for integration/bench, which measures other things in the same way:
// processes, rows and rounds.
//
//	dataset ──► Session: server process, reader processes ──┬─► Measurements, in Rounds ──► Row
//	URL ──────► Cats: lsiofs cat, a reader of its pipe ─────┘                                └─► table
package bench
