package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// units are the units of examples/systemd, and the manager that each is for.
var units = []struct{ name, path, manager string }{
	{"of the system", "../examples/systemd/lsiofs@.service", "--system"},
	{"of a user", "../examples/systemd/user/lsiofs@.service", "--user"},
}

// installUnit writes a unit to a directory, with the program under test in place of the installed
// one, and its configuration in configs.
func installUnit(t *testing.T, path, dir, configs string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(b)
	for _, installed := range []string{"ExecStart=/usr/local/bin/lsiofs ", "exec /usr/local/bin/lsiofs "} {
		require.Contains(t, text, installed)
	}
	text = strings.ReplaceAll(text, "/usr/local/bin/lsiofs", lsiofs)
	text = strings.NewReplacer("/etc/lsiofs", configs, "%E/lsiofs", configs).Replace(text)
	require.Contains(t, text, "EnvironmentFile="+configs+"/%i.conf\n")
	installed := filepath.Join(dir, filepath.Base(path))
	require.NoError(t, os.WriteFile(installed, []byte(text), 0o644))
	return installed
}

func TestExampleSystemdUnitsAreValid(t *testing.T) {
	analyze := need(t, "systemd-analyze")
	for _, u := range units {
		t.Run(u.name, func(t *testing.T) {
			dir := t.TempDir()
			installUnit(t, u.path, dir, "/etc/lsiofs")
			verify := []string{u.manager, "verify", "--recursive-errors=no", "--man=no", filepath.Join(dir, "lsiofs@train.service")}
			env := []string{"XDG_RUNTIME_DIR=" + t.TempDir()}
			require.NoError(t, os.Link(filepath.Join(dir, "lsiofs@.service"), filepath.Join(dir, "lsiofs@train.service")))
			r := command(t, env, nil, analyze, verify...)
			require.Zero(t, r.code, r.stderr)
			require.NotContains(t, r.stderr, "lsiofs", "a warning is a mistake, too")
		})
	}
}

// underSystemd is what a user does with the unit: $1 is the mount point.
const underSystemd = `
unit=lsiofs@train
property() { systemctl --user show --property "$1" --value "$unit"; }
answers() { for ((i = 0; i < 800; i++)); do [[ $(property ActiveState) == active ]] && return; sleep 0.1; done; return 1; }

systemctl --user start $unit
cat "$1/worker-1.jsonl" > stream # at once: started is mounted
property StatusText

kill -KILL "$(property MainPID)"
while [[ $(property NRestarts) != 1 ]]; do sleep 0.1; done
answers
cmp "$1/worker-1.jsonl" stream && echo mounted again

systemctl --user stop $unit
property ActiveState
property Result
mountpoint --quiet "$1" || echo nothing is mounted
pgrep --exact lsiofs || echo nothing runs

echo FLAGS=--workers 0 >> "$2"
systemctl --user start $unit 2> /dev/null || echo not started
property ExecMainStatus
property NRestarts
property StatusText
`

// TestExampleSystemdUnitsRun makes a systemd start, restart and stop the units. Readers are
// not part of the unit, so it also shows that the unit's restrictions leave the program what it
// needs, and that its mount is visible.
func TestExampleSystemdUnitsRun(t *testing.T) {
	serve.Tier(t, serve.CI)
	serve.Alone(t)
	needFUSE(t)
	for _, program := range []string{"bash", "systemctl", "unshare", "pgrep"} {
		need(t, program)
	}
	if os.Getuid() != 0 {
		missing(t, "a service manager of its own is made in namespaces, which takes root")
	}
	d := plain(t, "jsonl", 5)
	s := usual()
	want := newReference(t, d).data(s, 1)
	for _, u := range units {
		t.Run(u.name, func(t *testing.T) {
			home, point := t.TempDir(), filepath.Join(t.TempDir(), "made", "by the unit")
			require.NoError(t, os.Mkdir(filepath.Join(home, "units"), 0o700))
			installUnit(t, u.path, filepath.Join(home, "units"), home)
			config := filepath.Join(home, "train.conf")
			lines := fmt.Sprintf("DATASET=%s\nMNT=%s\nFLAGS=%s\n", d.dir, point, strings.Join(s.flags(), " "))
			require.NoError(t, os.WriteFile(config, []byte(lines), 0o600))

			script := "set -euo pipefail; cd " + home + underSystemd
			r := command(t, nil, nil, "testdata/systemd/own-systemd", home, "bash", "-c", script, "bash", point, config)
			log, _ := os.ReadFile(filepath.Join(home, "manager.log"))
			require.Zero(t, r.code, "%s\n%s%s", r.stdout, r.stderr, log)
			requireFile(t, want, filepath.Join(home, "stream"))
			said := strings.Split(strings.TrimSpace(string(r.stdout)), "\n")
			require.Len(t, said, 10, "%s", r.stdout)
			require.Contains(t, said[0], "mounted "+d.dir+" on "+point)
			require.Equal(t, []string{
				"mounted again",
				"inactive", "success", "nothing is mounted", "nothing runs",
				"not started", "2", "0",
			}, said[1:9], "%s", log)
			require.Contains(t, said[9], "workers")
		})
	}
}
