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

// Places that the whole run shares. They are set by TestMain before any test,
// and only read after that.
var (
	// lsiofs is the program under test.
	lsiofs string
	// scratch holds everything that the run makes: the program, its cache, and
	// the temporary directory of its processes.
	scratch string
)

// Time limits. They are there to end what hangs, not to measure: nothing that
// works comes near them, also where many others want the processors and the disk.
const (
	// clientLimit is less than the default of --read-timeout: who ends within it, though
	// storage does not answer, was not ended by that.
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

// environment is that of every program that the tests start.
func environment(tmp string) []string {
	return serve.Environment(tmp, filepath.Join(scratch, "cache"))
}

// raceBuilt says whether the program is race-built, as the tests are then.
const raceBuilt = serve.RaceBuilt

// Short words for what serve finds and does.
var (
	isMount     = serve.IsMount
	mountsBelow = serve.MountsBelow
	detach      = serve.Detach
)

func serverProcesses() []int { return serve.Processes(lsiofs) }
