//go:build race

package serve

// RaceBuilt says whether the tests have the race detector, and so the program.
const RaceBuilt = true
