package integration

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheChartAndTheManifestsOfTheDriverAreSound runs the tests of the chart, which has a module of its own. Its
// libraries, helm's among them, come from the network, once.
func TestTheChartAndTheManifestsOfTheDriverAreSound(t *testing.T) {
	if raceBuilt {
		t.Skip("the same as without the race detector")
	}
	inModule := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir = kubernetes + "/driver"
		return c.CombinedOutput()
	}
	if out, err := inModule("mod", "download"); err != nil {
		missing(t, "the libraries of helm can't be loaded: %v: %s", err, out)
	}
	out, err := inModule("test", "-count=1", "./...")
	require.NoError(t, err, "%s", out)
}
