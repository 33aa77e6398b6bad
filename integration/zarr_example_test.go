package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// The example learns something, and the same as from crops that zarr-python reads at the origins:
// so images, origins and times belong together.
func TestExampleZarrLearnsSameFromMountAsFromZarrPython(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "torch", "zarr", "numcodecs")
	sat := filepath.Join(t.TempDir(), "sat.zarr")
	output(t, interpreter, "../examples/zarr/make.py", sat, "--times", "144", "--edge", "64")
	mount := func(flags ...string) *mount {
		d := cropsOf(sat, append(flags, "--array", "data", "--crop", "time=6,y=32,x=32")...)
		return mountAt(t, d, t.TempDir())
	}
	train := mount("--stride", "time=3,y=16,x=16", "--jitter", "--select", "time=0:96")
	valid := mount("--select", "time=96:")

	result := func(more ...string) []string {
		args := append([]string{"../examples/zarr/train.py", train.dir, valid.dir, "--epochs", "2"}, more...)
		r := command(t, []string{"OMP_NUM_THREADS=1"}, nil, interpreter, args...)
		require.Zero(t, r.code, r.stderr)
		return strings.Split(regexp.MustCompile(`, \d+ crops/s`).ReplaceAllString(strings.TrimSpace(string(r.stdout)), ""), "\n")
	}
	own := result()
	require.Len(t, own, 2)
	for epoch, line := range own {
		found := regexp.MustCompile(`^epoch (\d): 279 crops, validation ([\d.]+) K² \(([\d.]+) if nothing changed\)$`).FindStringSubmatch(line)
		require.NotNil(t, found, line)
		require.Equal(t, strconv.Itoa(epoch), found[1])
		loss, err := strconv.ParseFloat(found[2], 64)
		require.NoError(t, err)
		same, err := strconv.ParseFloat(found[3], 64)
		require.NoError(t, err)
		require.Less(t, loss, same/float64(1+epoch), line)
	}
	require.Equal(t, own, result("--store", sat))
	_, err := os.Stat(filepath.Join(valid.dir, "coords", "time.npy"))
	require.NoError(t, err)
}
