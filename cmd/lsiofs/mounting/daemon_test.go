package mounting

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
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
