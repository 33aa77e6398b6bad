package serve

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeedIsConstantUnlessSet(t *testing.T) {
	t.Setenv("LSIOFS_SEED", "")
	require.EqualValues(t, 1, DefaultSeed())
	t.Setenv("LSIOFS_SEED", "18446744073709551615")
	require.EqualValues(t, uint64(1<<64-1), DefaultSeed())
	for _, text := range []string{"one", "-1", "1.5", "18446744073709551616"} {
		t.Setenv("LSIOFS_SEED", text)
		require.Panics(t, func() { DefaultSeed() }, text)
	}
}

// recorder is a test that has failed.
type recorder struct {
	testing.TB
	cleanups []func()
	log      []any
}

func (r *recorder) Helper()          {}
func (r *recorder) Failed() bool     { return true }
func (r *recorder) Name() string     { return "TestAll/of=1 (x)" }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Log(args ...any)  { r.log = append(r.log, args...) }

func TestFailedTestLogsHowToReproduceIt(t *testing.T) {
	t.Setenv("LSIOFS_SEED", "7")
	r := &recorder{TB: t}
	require.EqualValues(t, 7, Seed(r))
	require.Len(t, r.cleanups, 1)
	r.cleanups[0]()
	require.Equal(t, []any{
		`again: LSIOFS_SEED=7 go test -count=1 -run '^TestAll$/^of=1 \(x\)$' github.com/lsiofs/lsiofs/integration/serve`,
	}, r.log)
}

func TestPackageIsDerivedFromFunctionName(t *testing.T) {
	for function, pkg := range map[string]string{
		"github.com/lsiofs/lsiofs/fs.TestX":                        "github.com/lsiofs/lsiofs/fs",
		"github.com/lsiofs/lsiofs/fs.TestX.func1.2":                "github.com/lsiofs/lsiofs/fs",
		"github.com/lsiofs/lsiofs/pipeline/format/gzip_test.TestX": "github.com/lsiofs/lsiofs/pipeline/format/gzip",
		"github.com/lsiofs/lsiofs/pipeline/catalog.(*world).dice":  "github.com/lsiofs/lsiofs/pipeline/catalog",
		"main.main": "main",
	} {
		require.Equal(t, pkg, packageOf(function))
	}
}
