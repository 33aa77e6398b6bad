package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/killing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// Shared by the whole run. TestMain sets them before any test; after that they are only read.
var (
	// lsiofs is the program under test.
	lsiofs string
	// scratch contains everything that the run makes: the program, its cache, and the temporary
	// directory of its processes.
	scratch string
)

// Time limits end what hangs. They do not measure: nothing that works comes near them, even if the
// processors and the disk are busy with other work.
const (
	// clientLimit is less than the default of --read-timeout: a program that ends within it,
	// although storage does not answer, did not end because of that timeout.
	clientLimit = 4 * time.Minute
	mountLimit  = 20 * time.Minute
)

func TestMain(m *testing.M) {
	backing.Main()
	killing.Main()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := runIn(m)
	if code != 0 {
		fmt.Fprintf(os.Stderr, "integration: to draw the same again: -drawseed %d\n", *drawSeed)
	}
	return code
}

// runIn runs the tests with the program in a scratch directory.
func runIn(m *testing.M) int {
	return serve.Run(m, "integration", "../cmd/lsiofs", func(program, dir string) error {
		lsiofs, scratch = program, dir
		// Python programs find the package in its source, and the program under test.
		source, err := filepath.Abs("../examples/python/src")
		if err != nil {
			return err
		}
		return errors.Join(os.Setenv("PYTHONPATH", source), os.Setenv("LSIOFS_COMMAND", lsiofs))
	})
}

// environment returns the environment of every program that the tests start.
func environment(tmp string) []string {
	return serve.Environment(tmp, filepath.Join(scratch, "cache"))
}

// raceBuilt reports whether the program, like the tests, is built with the race detector.
const raceBuilt = serve.RaceBuilt

// Short names for functions of serve.
var (
	isMount     = serve.IsMount
	mountsBelow = serve.MountsBelow
	detach      = serve.Detach
)

func serverProcesses() []int { return serve.Processes(lsiofs) }
