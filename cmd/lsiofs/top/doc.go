// Package top does the work of the verb top. It shows live what the readers of mounts are waiting
// for and how far they have read.
//
//	MNT/status.json ──watch, once a second──► frame ──► terminal screen, line or JSON object
//	                                            └─► board ──► page (--listen)
//	MNT/metrics     ──scrape, when asked─────────────────────► /metrics (--listen)
//
// A frame is plain data. The board keeps the last minutes of each mount. Only top listens on the
// network, never the server of a mount, so clients of the page can't hold up a reader.
package top
