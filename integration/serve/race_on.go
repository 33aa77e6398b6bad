//go:build race

package serve

// RaceBuilt reports whether the tests, and so the program, are built with the race detector.
const RaceBuilt = true
