package soak

import (
	"flag"
	"fmt"
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
	soakSeed = flag.Uint64("soak-seed", 0, "seed of datasets, settings and clients (0: one by the time)")
)

// Places that the whole run shares, set before any test.
var (
	lsiofs  string // the program under test
	scratch string // everything that the run makes
)

// endLimit ends what hangs: nothing that works comes near it.
const endLimit = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	if *soakSeed == 0 {
		*soakSeed = uint64(time.Now().UnixNano())
	}
	var err error
	if scratch, err = os.MkdirTemp("", "lsiofs-soak-"); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	lsiofs = filepath.Join(scratch, "lsiofs")
	defer func() {
		// Mounts first: removing a tree must never walk into one.
		if left := serve.LeftOvers(lsiofs, scratch, filepath.Join(scratch, "tmp")); left != "" {
			fmt.Fprintf(os.Stderr, "soak: the tests left behind:\n%s", left)
			code = 1
		}
		os.RemoveAll(scratch)
	}()
	for _, dir := range []string{"cache", "tmp", "tests"} {
		if err := os.Mkdir(filepath.Join(scratch, dir), 0o700); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 1
		}
	}
	if err := serve.Build(lsiofs, "../../cmd/lsiofs"); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	// t.TempDir makes its directories here, so that the mounts of this run, and
	// of no other, are found at its end.
	os.Setenv("TMPDIR", filepath.Join(scratch, "tests"))
	return m.Run()
}

// environment is that of every program that the tests start, but for servers,
// each of which has a temporary directory of its own.
func environment() []string { return environmentIn(filepath.Join(scratch, "tmp")) }

func environmentIn(tmp string) []string {
	return serve.Environment(tmp, filepath.Join(scratch, "cache"))
}

// needAll ends a test where the machine lacks what it needs.
func needAll(t *testing.T) {
	t.Helper()
	serve.NeedFUSE(t)
	for _, program := range []string{"python3", "cat", "zstd", "lz4"} {
		if _, err := exec.LookPath(program); err != nil {
			serve.Missing(t, "%s is not installed", program)
		}
	}
}
