// Package top does the work of the verb top. It shows live what the readers of mounts
// wait for, and how far they are.
//
//	MNT/status.json ──watch, once a second──► frame ──► terminal screen, line or JSON object
//	                                            └─► board ──► page (--listen)
//	MNT/metrics     ──scrape, when asked─────────────────────► /metrics (--listen)
//
// A frame is plain data. The board keeps the last minutes of each mount. Only top listens, never
// the server of a mount: what is heard on the network can't hold up a reader.
package top
