// Package soak runs mounts for a long time, and kills them. It only has tests:
//
//	go test -v ./integration/soak                          90 s, 40 kills, and 60 s that grow
//	go test -v ./integration/soak -run Soak -soak 8h -timeout 0
//	go test -v ./integration/soak -run Killed -kills 200
//	go test -v ./integration/soak -run Growing -grow 8h -timeout 0
//
// TestSoak runs random clients on mounts of several formats that live as long as the test. The
// clients read from front to back, at random and through mappings; they stop, are stopped, and are
// killed by signals. Meanwhile the position is saved and restored. Other mounts, with newly drawn
// settings, come and go. At the end each server's memory, descriptors, threads, goroutines and
// mappings are printed, and must not have grown.
//
// TestKilledAtRandom ends servers by signals at random moments, and mounts again.
//
// TestGrowing makes shards arrive at 1000 a second, and two nodes read epoch after epoch of those
// present, while one of them and their readers are killed.
//
// Every byte of every read is compared with a model that is as naive as possible: the records as
// they were made, in the order computed by the second implementation (integration/reference). A
// failure prints its seed. With -soak-seed the same settings and clients are drawn again; only the
// timing depends on the machine.
package soak
