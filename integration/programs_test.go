package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// missing ends a test that needs something this machine does not have: it skips the test with the
// reason, or fails it if nothing may be missing (CI=true).
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	serve.Missing(t, format, args...)
}

// need returns the path of a client program.
func need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		missing(t, "%s is not installed", program)
	}
	return path
}

// needFUSE skips the test if nothing can be mounted.
func needFUSE(t testing.TB) {
	t.Helper()
	serve.NeedFUSE(t)
	if os.Getuid() != 0 {
		need(t, "fusermount3")
	}
}

// pythons are the candidate interpreters: Debian's packages often belong to another one than that
// in PATH.
var pythons = []string{"python3", "/usr/bin/python3", "/usr/local/bin/python3"}

// pythonImports caches which interpreter can import what.
var pythonImports sync.Map

// python returns an interpreter that can import all of modules.
func python(t testing.TB, modules ...string) string {
	t.Helper()
	path := pythonWith(modules...)
	if path == "" {
		missing(t, "no Python 3 that imports %s (tried %s)", strings.Join(modules, ", "), strings.Join(pythons, ", "))
	}
	return path
}

// pythonWith is like python, but returns "" if there is none.
func pythonWith(modules ...string) string {
	imports := strings.Join(append([]string{"sys"}, modules...), ", ")
	find, _ := pythonImports.LoadOrStore(imports, sync.OnceValue(func() string {
		candidates := pythons
		if own := os.Getenv("LSIOFS_PYTHON"); own != "" {
			candidates = []string{own}
		}
		for _, candidate := range candidates {
			// In PATH there may be a script that looks for the interpreter each time.
			path, err := exec.Command(candidate, "-c", "import "+imports+"; print(sys.executable)").Output()
			if err == nil {
				return strings.TrimSpace(string(path))
			}
		}
		return ""
	}))
	return find.(func() string)()
}

// nodeWith returns Node, and the directory where integration/check installs npm packages, which
// contains this one.
func nodeWith(t testing.TB, name string) (node, modules string) {
	t.Helper()
	node = need(t, "node")
	modules, err := filepath.Abs("node_modules")
	require.NoError(t, err)
	if _, err := os.Stat(filepath.Join(modules, name)); err != nil {
		missing(t, "the npm package %s is not in integration/node_modules", name)
	}
	return node, modules
}

// result is the outcome of running a program.
type result struct {
	stdout []byte
	stderr string
	code   int
}

// command runs a program with the run's environment and a time limit, and returns the outcome.
func command(t testing.TB, env []string, stdin []byte, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clientLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = clientLimit
	cmd.Env = append(environment(filepath.Join(scratch, "tmp")), env...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoErrorf(t, ctx.Err(), "%s took longer than %v\n%s", cmd, clientLimit, stderr.String())
	if cmd.ProcessState == nil {
		require.NoError(t, err, "%s", cmd)
	}
	return result{stdout.Bytes(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// until waits for a condition that a process brings about. exited is closed when the process has
// ended, which fails the test at once.
func until(t testing.TB, exited <-chan struct{}, holds func() bool, what ...any) {
	t.Helper()
	require.NoError(t, serve.Until(clientLimit, exited, holds), what...)
}

// launch starts a program that ends with the test at the latest.
func launch(t testing.TB, cmd *exec.Cmd) (exited <-chan struct{}) {
	t.Helper()
	exited, err := serve.Launch(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	return exited
}

// output runs a client program that must succeed, and returns its stdout.
func output(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	r := command(t, nil, nil, name, args...)
	require.Zerof(t, r.code, "%s %q failed: %s", name, args, r.stderr)
	return r.stdout
}

// shell runs a sh script that must succeed, with $1, $2, … in args.
func shell(t testing.TB, script string, args ...string) []byte {
	t.Helper()
	return output(t, "sh", append([]string{"-ec", script, "sh"}, args...)...)
}

// script runs a Python program that must succeed, with sys.argv[1:] in args.
func script(t testing.TB, interpreter, program string, args ...string) []byte {
	t.Helper()
	return output(t, interpreter, append([]string{"-c", program}, args...)...)
}

// tool runs the program under test and returns the outcome.
func tool(t testing.TB, args ...string) result {
	t.Helper()
	return command(t, nil, nil, lsiofs, args...)
}

// toolOK runs the program under test, which must succeed, and returns its stdout.
func toolOK(t testing.TB, args ...string) []byte {
	t.Helper()
	return output(t, lsiofs, args...)
}
