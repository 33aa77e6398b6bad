// Package top shows live what the readers of a mount wait for, and how far they are.
// It is the work of the verb top.
//
// A watch reads MNT/status.json once a second and makes frames of what it has seen. A
// frame is plain data: it is drawn on a terminal, or printed as a line or an object.
package top
