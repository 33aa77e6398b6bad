package soak

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lsiofs/lsiofs/integration/serve"
)

var (
	soakFor  = flag.Duration("soak", 90*time.Second, "how long the soak lasts at least")
	kills    = flag.Int("kills", 40, "how often servers are killed")
	soakSeed = flag.Uint64("soak-seed", serve.DefaultSeed(), "seed of datasets, settings and clients")
)

// Values that the whole run shares, set before any test.
var (
	lsiofs  string // the program under test
	scratch string // the directory of everything that the run makes
)

// endLimit ends what hangs: nothing that works comes near it.
const endLimit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	return serve.Run(m, "soak", "../../cmd/lsiofs", func(program, dir string) error {
		lsiofs, scratch = program, dir
		return nil
	})
}

// environment returns the environment of every program that the tests start, except for servers,
// each of which has its own temporary directory.
func environment() []string { return environmentIn(filepath.Join(scratch, "tmp")) }

func environmentIn(tmp string) []string {
	return serve.Environment(tmp, filepath.Join(scratch, "cache"))
}

// needAll ends a test if the machine lacks something that it needs.
func needAll(t *testing.T) {
	t.Helper()
	serve.NeedFUSE(t)
	for _, program := range []string{"python3", "cat", "zstd", "lz4", "rsync"} {
		if _, err := exec.LookPath(program); err != nil {
			serve.Missing(t, "%s is not installed", program)
		}
	}
}
