// Package soak runs mounts for long, and kills them. It has no code of its own
// beside its tests:
//
//	go test -v ./integration/soak                          90 s, and 40 kills
//	go test -v ./integration/soak -run Soak -soak 8h -timeout 0
//	go test -v ./integration/soak -run Killed -kills 200
//
// TestSoak has random clients at mounts of three formats that live as long as
// the test: they read from front to back, at random and through mappings, they
// stop, are stopped, and are killed by signals, and the position is saved and
// restored under them. Other mounts, of settings drawn anew, come and go. At the
// end each server's memory, descriptors, threads, goroutines and mappings are
// printed, and must be flat.
//
// TestKilledAtRandom ends servers by signals at any moment, and mounts again.
//
// Every byte of every read is held against a model that is as naive as can be:
// the records as they were when the shards were made, and the order that the
// second implementation (integration/reference) gives. A failure names its seed,
// with which -soak-seed draws the same settings and the same clients again; when
// they run is the machine's affair.
package soak
