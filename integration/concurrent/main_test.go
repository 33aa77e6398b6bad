package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConcurrencyInSourceIsDetected(t *testing.T) {
	for source, want := range map[string]bool{
		"func f() { go f() }":                                          true,
		"func f() { func() { for { go f() } }() }":                     true,
		"import \"testing\"\nfunc f(t *testing.T) { t.Parallel() }":    true,
		"import \"time\"\nvar _ = time.AfterFunc(0, nil)":              true,
		"import \"sync\"\nvar m sync.Mutex":                            true,
		"import s \"sync\"\nvar m s.Pool":                              true,
		"import \"sync/atomic\"\nvar n atomic.Int64":                   true,
		"import \"golang.org/x/sync/errgroup\"\nvar g errgroup.Group":  true,
		"import \"sync\"\nvar p sync.Pool\nvar o = sync.OnceValue(f)":  false,
		"import \"sync\"\nvar p sync.Pool\nvar m map[int]sync.RWMutex": true,
		"func f() { g() }\n// go f()":                                  false,
		"import \"context\"\nfunc f(ctx context.Context) {}":           false,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+source, 0)
		require.NoError(t, err, source)
		require.Equal(t, want, isConcurrent(file), source)
	}
}

func TestOnlyPackagesOfModuleAreListed(t *testing.T) {
	root := t.TempDir()
	for path, source := range map[string]string{
		"go.mod":                     "module m",
		"code/a.go":                  "package code\nfunc f() { go f() }",
		"code/a_test.go":             "package code",
		"tests/a.go":                 "package tests",
		"tests/a_arm64_test.go":      "package tests\nfunc f() { go f() }",
		"deep/er/a_test.go":          "package er\nfunc f() { go f() }",
		"untested/a.go":              "package untested\nfunc f() { go f() }",
		"pure/a_test.go":             "package pure",
		"pure/testdata/a_test.go":    "package testdata\nfunc f() { go f() }",
		"other/go.mod":               "module other",
		"other/below/a_test.go":      "package below\nfunc f() { go f() }",
		"integration/it/a_test.go":   "package it\nfunc f() { go f() }",
		".git/a_test.go":             "package git\nfunc f() { go f() }",
		"code/integration/a.go":      "package integration\nfunc f() { go f() }",
		"code/integration/a_test.go": "package integration",
	} {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(source), 0o644))
	}
	dirs, err := concurrent(root)
	require.NoError(t, err)
	require.Equal(t, []string{"code", "code/integration", "deep/er", "tests"}, dirs)

	dirs, err = concurrent(filepath.Join(root, "other"))
	require.NoError(t, err)
	require.Equal(t, []string{"below"}, dirs)

	require.NoError(t, os.WriteFile(filepath.Join(root, "pure/b.go"), []byte("package"), 0o644))
	_, err = concurrent(root)
	require.ErrorContains(t, err, "b.go")
}

// These two won't change: the list is that of this repository.
func TestConcurrentPackagesOfThisRepository(t *testing.T) {
	dirs, err := concurrent("../..")
	require.NoError(t, err)
	require.Contains(t, dirs, "pipeline/read")
	require.NotContains(t, dirs, "pipeline/plan")
}
