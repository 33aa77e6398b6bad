package mounting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

func TestDetachedProcessGetsSameArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"mount --daemon data mnt --workers 4", "data mnt --workers 4 --log-file=/log"},
		{"--json mount data mnt --daemon=true", "--json data mnt --log-file=/log"},
		{"mount mount mnt --daemon", "mount mnt --log-file=/log"},
		{"mount data mnt --daemon=1 --workers 4", "data mnt --workers 4 --log-file=/log"},
		{"mount data mnt --daemon=false --daemon=T", "data mnt --log-file=/log"},
		{"mount --daemon -- --daemon mnt", "--log-file=/log -- --daemon mnt"},
	} {
		require.Equal(t, strings.Fields(c.want), daemonArgs(strings.Fields(c.args), "/log"))
	}
}

func TestMountLogFilesAreNextToIndexes(t *testing.T) {
	dir := t.TempDir()
	logOf := func(asked, point string) string {
		f, err := new(Config).openDaemonLog(asked, dir, point)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	a := logOf("", "/mnt/train")
	require.Equal(t, dir, filepath.Dir(a))
	require.Regexp(t, `^mount-train-[0-9a-f]{8}\.log$`, filepath.Base(a))
	require.NotEqual(t, a, logOf("", "/other/train"), "two mounts, two logs")
	file := filepath.Join(dir, "x.log")
	require.Equal(t, file, logOf(file, "/mnt/train"))
}

// recorded is a reporter that records the calls.
type recorded struct{ what []string }

func (r *recorded) Progress(p catalog.Progress) { r.what = append(r.what, "progress") }
func (r *recorded) Waiting(w opening.Waited)    { r.what = append(r.what, "waiting "+w.String()) }
func (r *recorded) Filling(f opening.Filled)    { r.what = append(r.what, "filling "+f.String()) }
func (r *recorded) Warn(text string)            { r.what = append(r.what, "warn "+text) }
func (r *recorded) Trouble(text string)         { r.what = append(r.what, "trouble "+text) }
func (r *recorded) Mounted(i Info)              { r.what = append(r.what, "mounted "+i.Mount) }
func (r *recorded) Serving(func() string)       { r.what = append(r.what, "serving") }
func (r *recorded) Unmounting()                 { r.what = append(r.what, "unmounting") }
func (r *recorded) Ended(error)                 { r.what = append(r.what, "ended") }

func TestChildMessagesAreForwarded(t *testing.T) {
	say := func(messages ...readyMessage) *bytes.Buffer {
		var b bytes.Buffer
		for _, m := range messages {
			require.NoError(t, json.NewEncoder(&b).Encode(m))
		}
		return &b
	}
	progress, warning := readyMessage{Progress: &catalog.Progress{}}, readyMessage{Warning: "w"}
	var r recorded
	require.NoError(t, follow(say(progress, readyMessage{Filling: &opening.Filled{Bytes: 1, BytesTotal: 4}}, warning, readyMessage{Trouble: "t"}, readyMessage{Mounted: &Info{Mount: "/m"}}), &r))
	require.Equal(t, []string{"progress", "filling 1 B of 4 B (25 %)", "warn w", "trouble t", "mounted /m"}, r.what)

	err := follow(say(progress, readyMessage{Error: &readyError{"no such dataset", exit.Dataset}}), &recorded{})
	require.EqualError(t, err, "no such dataset")
	require.Equal(t, exit.Dataset, exit.CodeOf(err))

	err = follow(say(progress), &recorded{})
	require.ErrorContains(t, err, "ended before the mount was ready")
	require.Equal(t, exit.Mount, exit.CodeOf(err))
	require.Error(t, follow(strings.NewReader("{broken"), &recorded{}))
}

// Whatever killed the process may have logged the reason there.
func TestErrorForSilentDaemonExitNamesLog(t *testing.T) {
	err := namingLog(follow(strings.NewReader(""), &recorded{}), "/logs/mount.log")
	require.EqualError(t, err, "the mount's process ended before the mount was ready: its log may give the reason (/logs/mount.log)")
	require.Equal(t, exit.Mount, exit.CodeOf(err))
	told := exit.Errorf(exit.Dataset, "no such dataset")
	require.Equal(t, told, namingLog(told, "/logs/mount.log"))
}

// By default the log is next to the index, perhaps in a directory of the dataset's owner.
func TestADaemonsLogIsNotWrittenWhereALinkLeads(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "mount.log")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	for name, plant := range map[string]func() error{
		"a symbolic link": func() error { return os.Symlink(victim, path) },
		"a second name":   func() error { return os.Link(victim, path) },
		"a pipe":          func() error { return syscall.Mkfifo(path, 0o600) },
		"a file that others may write to": func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o622))
		},
		"a stranger's file": func() error {
			if os.Getuid() != 0 {
				t.Skip("making a stranger's file takes root")
			}
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65533, 65533))
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, plant())
			_, err := openOwnLog(path)
			require.ErrorContains(t, err, "--log-file")
			require.NoError(t, os.Remove(path))
		})
	}
	f, err := openOwnLog(path)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	f, err = new(Config).openDaemonLog("/dev/null", "", "/mnt")
	require.NoError(t, err, "what was asked for by name may be anything")
	require.NoError(t, f.Close())
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
}

// If there is no cache directory and the index directory can't be created, mounts still work, and
// so do their logs.
func TestDaemonLogsElsewhereIfIndexDirectoryCannotBeCreated(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, set := range map[string]func(t *testing.T) (indexDir string){
		"no home directory":          func(t *testing.T) string { t.Setenv("HOME", ""); t.Setenv("XDG_CACHE_HOME", ""); return "" },
		"a relative cache directory": func(t *testing.T) string { t.Setenv("XDG_CACHE_HOME", "cache"); return "" },
		"a file in its place":        func(t *testing.T) string { return filepath.Join(file, "index") },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := new(Config).openDaemonLog("", set(t), "/mnt/train")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.Equal(t, filepath.Join(dir, fmt.Sprintf("lsiofs-%d", os.Geteuid())), filepath.Dir(f.Name()))
			require.NoError(t, os.Remove(f.Name()))
		})
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, fmt.Sprintf("lsiofs-%d", os.Geteuid())), 0o755))
	_, err := new(Config).openDaemonLog("", filepath.Join(file, "index"), "/mnt/train")
	require.ErrorContains(t, err, "choose another one with --log-file", "others could get at it")
}
