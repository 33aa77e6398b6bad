package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// asProgram makes the test binary run as the program itself, so that commands that start themselves
// again (mount --daemon, demo) start it.
const asProgram = "LSIOFS_TEST_AS_PROGRAM"

// asHost is the host name that such a program sets. It is for a program started in a UTS namespace
// of its own.
const asHost = "LSIOFS_TEST_AS_HOST"

func TestMain(m *testing.M) {
	serve.Main()
	if os.Getenv(asProgram) != "" {
		if host := os.Getenv(asHost); host != "" {
			if err := unix.Sethostname([]byte(host)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		main()
		return
	}
	os.Exit(runTests(m))
}

// runTests gives all tests, and the programs that they start, a cache directory of their own:
// measurements stored for this machine would change plans, and indexes of tests would be left in
// the user's cache. Temporary directories are below one that is removed with its mounts and
// servers, even if this process is killed. The service manager that runs the tests must not be
// notified of mounts.
func runTests(m *testing.M) int {
	scratch, remove, err := serve.Scratch("cmd")
	if err == nil {
		defer remove()
		tests := filepath.Join(scratch, "tests")
		err = errors.Join(os.Mkdir(tests, 0o700), os.Setenv("TMPDIR", tests),
			os.Setenv("XDG_CACHE_HOME", filepath.Join(scratch, "cache")), os.Unsetenv("NOTIFY_SOCKET"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// result is the result of one run of the program.
type result struct {
	code           exit.Code
	stdout, stderr string
}

// lsiofs runs the program in this process.
func lsiofs(t *testing.T, args ...string) result {
	t.Helper()
	return lsiofsContext(t.Context(), args...)
}

func lsiofsContext(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	code := run(ctx, &interrupts{force: context.Background()}, args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// ok runs the program and expects success.
func ok(t *testing.T, args ...string) result {
	t.Helper()
	r := lsiofs(t, args...)
	require.Equal(t, exit.OK, r.code, "lsiofs %v: %s", args, r.stderr)
	return r
}
