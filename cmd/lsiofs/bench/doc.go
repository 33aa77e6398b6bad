// Package bench does the work of the verb bench, and of integration/bench. It measures lsiofs
// against the limits of the machine, checks the promises about its speed (check*.go, promise.go,
// and the rows of the promises), and makes datasets to measure with (make*.go). Only the verb's
// part is in the users' program. Command prints the results; everything else measures.
//
//	dataset ──► session: server process, reader processes ──┬─► rows (medians) ──► table
//	files ──► network: web server, bare client, lsiofs cat ─┘     └──► promises kept? (check)
package bench
