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

// raceTests lists the tests of this package that .ci/run runs with the race detector; raceSkip
// lists those of other packages that it does not run with it. Which packages it tests so is not a
// list: see package concurrent.
const (
	raceTests = "../.ci/race-tests"
	raceSkip  = "../.ci/race-skip"
)

func TestTheTestsOfTheRaceRoundExist(t *testing.T) {
	requireTestsExist(t, raceTests, testsBelow(t, "."))
	requireTestsExist(t, raceSkip, append(testsBelow(t, "../pipeline"), testsBelow(t, "../cmd")...))
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

// testsBelow returns the names of the tests of a directory and of those below it.
func testsBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				names = append(names, f.Name.Name)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(names), 100)
	return names
}
