//go:build !race

package integration

// raceBuilt makes the program race-built where the tests are.
const raceBuilt = false
