package integration

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The manifests of examples/kubernetes, and the chart and manifests of its driver, have modules of their own,
// whose tests run here. Their libraries come from the network, once. That what the page says works is
// integration/cluster's.

func TestExampleKubernetesManifestsAreSound(t *testing.T) {
	testsOfModule(t, "../examples/kubernetes")
}

func TestTheChartAndTheManifestsOfTheDriverAreSound(t *testing.T) {
	if raceBuilt {
		t.Skip("the same as without the race detector")
	}
	testsOfModule(t, "../examples/kubernetes/driver")
}

func testsOfModule(t *testing.T, dir string) {
	t.Helper()
	in := func(args ...string) ([]byte, error) {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir = dir
		return c.CombinedOutput()
	}
	if out, err := in("mod", "download"); err != nil {
		missing(t, "the libraries of %s can't be loaded: %v: %s", dir, err, out)
	}
	out, err := in("test", "-count=1", "./...")
	require.NoError(t, err, "%s", out)
}
