package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// raceTests lists the tests of this package that .ci/run runs with the race detector.
const raceTests = "../.ci/race-tests"

// Which packages .ci/run tests with the race detector is not a list: see package concurrent.
func TestTheTestsOfTheRaceRoundExist(t *testing.T) {
	b, err := os.ReadFile(raceTests)
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	require.NotEmpty(t, listed)
	require.True(t, slices.IsSorted(listed), "%s: sort it", raceTests)
	require.Len(t, slices.Compact(slices.Clone(listed)), len(listed), "%s: a test is in it twice", raceTests)
	tests := testsOfThisPackage(t)
	for _, name := range listed {
		if !slices.Contains(tests, name) {
			t.Errorf("%s: there is no %s: was it renamed?", raceTests, name)
		}
	}
}

func testsOfThisPackage(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("*_test.go")
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
