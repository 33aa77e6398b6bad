// Package bench does the work of the verb bench. It measures lsiofs against the limits
// of the machine, and makes datasets to measure with. Command prints the results;
// everything else measures.
//
//	dataset ──► session: server process, reader processes ──┬─► rows (medians) ──► table
//	files ──► network: web server, bare client, lsiofs cat ─┘     └──► promises kept? (check)
package bench
