package serve

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// The tiers of tests, from the smallest to the largest. Each one includes those before it.
// The environment variable LSIOFS_TIER selects one; the default is Newcomer.
//
// A test without a tier is of tier Newcomer. A test of another tier names it in its first
// line: serve.Tier(t, serve.CI).
const (
	// Newcomer is what integration/check runs on a machine with only Go installed: everything that
	// shows that the program works, in ten minutes.
	Newcomer = "newcomer"
	// CI is what .ci/run adds. These tests take long, need compilers, linters, containers, browsers
	// or servers, and always have the same outcome.
	CI = "ci"
	// Night is what integration/night adds: tests that draw random numbers, and tests that take
	// longer than CI allows.
	Night = "night"
)

var tiers = []string{Newcomer, CI, Night}

// Tier skips a test that belongs to a larger tier than the selected one.
func Tier(t testing.TB, tier string) {
	t.Helper()
	if !Runs(tier) {
		t.Skipf("a test of tier %s: set LSIOFS_TIER=%[1]s to run it", tier)
	}
}

// Runs reports whether tests of a tier are run. It panics if LSIOFS_TIER is not a tier: otherwise a
// typing error would skip tests.
func Runs(tier string) bool {
	selected := os.Getenv("LSIOFS_TIER")
	if selected == "" {
		selected = Newcomer
	}
	if !slices.Contains(tiers, tier) || !slices.Contains(tiers, selected) {
		panic(fmt.Sprintf("LSIOFS_TIER=%q, tier %q: known are %q", selected, tier, tiers))
	}
	return slices.Index(tiers, tier) <= slices.Index(tiers, selected)
}

// Alone keeps a test from running next to others. Tests that change or count something of the
// whole machine call it in their first line, after Tier: mount namespaces (each holds a copy of
// every mount, and keeps it busy), containers, control groups, the page cache.
//
// integration/divided runs several processes at a time and sets LSIOFS_ALONE to the name of a
// file. There Alone appends the test's name to that file and skips it; divided runs the tests
// in the file at the end, in one process. Without LSIOFS_ALONE the test simply runs.
func Alone(t testing.TB) {
	t.Helper()
	list := os.Getenv("LSIOFS_ALONE")
	if list == "" {
		return
	}
	f, err := os.OpenFile(list, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintln(f, t.Name())
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Skip("runs alone, after the others")
}
