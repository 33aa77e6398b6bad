package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/stretchr/testify/require"
)

// raceTests lists the tests of this package that .ci/run runs with the race detector. raceSkip
// lists the tests of other packages that it does not run with it. There is no list of those
// packages: see package concurrent.
const (
	raceTests = "../.ci/race-tests"
	raceSkip  = "../.ci/race-skip"
)

func TestRaceRoundTestsExist(t *testing.T) {
	requireTestsExist(t, raceTests, testsOf(t, "*_test.go"))
	requireTestsExist(t, raceSkip, testsOf(t, "../{pipeline,cmd}/**/*_test.go"))
}

func requireTestsExist(t *testing.T, list string, tests []string) {
	t.Helper()
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	require.NotEmpty(t, listed)
	require.True(t, slices.IsSorted(listed), "%s: sort it", list)
	require.Len(t, slices.Compact(slices.Clone(listed)), len(listed), "%s: a test is in it twice", list)
	for _, name := range listed {
		if !slices.Contains(tests, name) {
			t.Errorf("%s: there is no %s: was it renamed?", list, name)
		}
	}
}

// testsOf returns the names of the tests in the files that match a pattern.
func testsOf(t *testing.T, pattern string) (names []string) {
	t.Helper()
	paths, err := doublestar.FilepathGlob(pattern)
	require.NoError(t, err)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
	}
	require.Greater(t, len(names), 100)
	return names
}
