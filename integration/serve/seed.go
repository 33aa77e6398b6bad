package serve

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// DefaultSeed returns the seed of random tests: the environment variable LSIOFS_SEED, or 1. CI
// leaves it at 1, so that the same commit always has the same outcome; integration/night sets a
// different one each time. It is the default of flags such as -drawseed.
//
// It panics if LSIOFS_SEED is not a number: otherwise a typing error would draw what every other
// run draws.
func DefaultSeed() uint64 {
	text := os.Getenv("LSIOFS_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("LSIOFS_SEED=%q is not a number from 0 to 2^64-1", text))
	}
	return seed
}

// Seed returns DefaultSeed for a random test. If the test fails, its log has the command that draws
// the same again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed, pkg := DefaultSeed(), "."
	if pc, _, _, ok := runtime.Caller(1); ok {
		pkg = packageOf(runtime.FuncForPC(pc).Name())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("again: " + again(seed, pkg, t.Name()))
		}
	})
	return seed
}

// again returns the command that runs one test with a seed.
func again(seed uint64, pkg, test string) string {
	names := strings.Split(test, "/")
	for i, name := range names {
		names[i] = "^" + regexp.QuoteMeta(name) + "$"
	}
	return fmt.Sprintf("LSIOFS_SEED=%d go test -count=1 -run '%s' %s", seed, strings.Join(names, "/"), pkg)
}

// packageOf returns the import path of the package that a test function belongs to, given the
// function's full name, such as github.com/lsiofs/lsiofs/pipeline/catalog.TestParts.func1.
func packageOf(function string) string {
	dir, name := "", function
	if slash := strings.LastIndexByte(function, '/'); slash >= 0 {
		dir, name = function[:slash+1], function[slash+1:]
	}
	name, _, _ = strings.Cut(name, ".")
	return dir + strings.TrimSuffix(name, "_test")
}
