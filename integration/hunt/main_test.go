package hunt

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

var (
	huntFor  = flag.Duration("hunt", 50*time.Second, "how long the hunt lasts; the enumerated schedules are always run")
	huntSeed = flag.Uint64("hunt-seed", serve.DefaultSeed(), "seed of schedules")
	huntOnly = flag.Int("hunt-only", -1, "the only schedule to run, by its number")
	huntWay  = flag.String("hunt-way", "", "run schedules of this way only")
	huntGoOn = flag.Bool("hunt-go-on", false, "go on behind schedules that fail")
)

// Values that the whole run shares, set before any test.
var (
	lsiofs  string // the program under test
	scratch string // the directory of everything that the run makes
)

// endLimit ends what hangs: nothing that works comes near it, however busy the machine. It is below
// the five minutes after which a mount abandons a stalled read.
const endLimit = 4 * time.Minute

func TestMain(m *testing.M) {
	backing.Main()
	mapperMain()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	return serve.Run(m, "hunt", "../../cmd/lsiofs", func(program, dir string) error {
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
	for _, program := range []string{"python3", "cat", "zstd", "lz4", "mount", "umount", "prlimit"} {
		if _, err := exec.LookPath(program); err != nil {
			serve.Missing(t, "%s is not installed", program)
		}
	}
}
