// Package top does the work of the verb top. It shows live what the readers of a mount
// wait for, and how far they are.
//
//	MNT/status.json ──watch, once a second──► frame ──► terminal screen, line or JSON object
//
// A frame is plain data.
package top
