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

func TestTheDetachedProcessGetsTheSameArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"mount --daemon data mnt --workers 4", "data mnt --workers 4"},
		{"--json mount data mnt --daemon=true", "--json data mnt"},
		{"mount mount mnt --daemon", "mount mnt"},
		{"mount data mnt --daemon=1 --workers 4", "data mnt --workers 4"},
		{"mount data mnt --daemon=false --daemon=T", "data mnt"},
		{"mount --daemon -- --daemon mnt", "-- --daemon mnt"},
	} {
		require.Equal(t, strings.Fields(c.want), daemonArgs(strings.Fields(c.args)))
	}
}

func TestLogFilesOfMountsAreBesideTheIndexes(t *testing.T) {
	dir := t.TempDir()
	o := Config{Point: "/mnt/train"}
	a, err := o.logPath("", dir)
	require.NoError(t, err)
	require.Equal(t, dir, filepath.Dir(a))
	require.Regexp(t, `^mount-train-[0-9a-f]{8}\.log$`, filepath.Base(a))
	o.Point = "/other/train"
	b, err := o.logPath("", dir)
	require.NoError(t, err)
	require.NotEqual(t, a, b, "two mounts, two logs")
	file := filepath.Join(dir, "x.log")
	b, err = o.logPath(file, dir)
	require.NoError(t, err)
	require.Equal(t, file, b)
}

// recorded is a reporter that remembers.
type recorded struct{ what []string }

func (r *recorded) Progress(p catalog.Progress) { r.what = append(r.what, "progress") }
func (r *recorded) Waiting(w opening.Waited)    { r.what = append(r.what, "waiting "+w.String()) }
func (r *recorded) Filling(f opening.Filled)    { r.what = append(r.what, "filling "+f.String()) }
func (r *recorded) Warn(text string)            { r.what = append(r.what, "warn "+text) }
func (r *recorded) Mounted(i Info)              { r.what = append(r.what, "mounted "+i.Mount) }
func (r *recorded) Serving(func() string)       { r.what = append(r.what, "serving") }
func (r *recorded) Unmounting()                 { r.what = append(r.what, "unmounting") }
func (r *recorded) Ended(error)                 { r.what = append(r.what, "ended") }

func TestWhatAChildSaysIsPassedOn(t *testing.T) {
	say := func(messages ...readyMessage) *bytes.Buffer {
		var b bytes.Buffer
		for _, m := range messages {
			require.NoError(t, json.NewEncoder(&b).Encode(m))
		}
		return &b
	}
	progress, warning := readyMessage{Progress: &catalog.Progress{}}, readyMessage{Warning: "w"}
	var r recorded
	require.NoError(t, follow(say(progress, readyMessage{Filling: &opening.Filled{Bytes: 1, BytesTotal: 4}}, warning, readyMessage{Mounted: &Info{Mount: "/m"}}), &r))
	require.Equal(t, []string{"progress", "filling 1 B of 4 B (25 %)", "warn w", "mounted /m"}, r.what)

	err := follow(say(progress, readyMessage{Error: &readyError{"no such dataset", exit.Dataset}}), &recorded{})
	require.EqualError(t, err, "no such dataset")
	require.Equal(t, exit.Dataset, exit.CodeOf(err))

	err = follow(say(progress), &recorded{})
	require.ErrorContains(t, err, "ended before the mount was ready")
	require.Equal(t, exit.Mount, exit.CodeOf(err))
	require.Error(t, follow(strings.NewReader("{broken"), &recorded{}))
}

// TestADaemonThatEndsWithoutAWordNamesItsLog: what killed it may have been told there.
func TestADaemonThatEndsWithoutAWordNamesItsLog(t *testing.T) {
	err := namingLog(follow(strings.NewReader(""), &recorded{}), "/logs/mount.log")
	require.EqualError(t, err, "the process ended before the mount was ready (log: /logs/mount.log)")
	require.Equal(t, exit.Mount, exit.CodeOf(err))
	told := exit.Errorf(exit.Dataset, "no such dataset")
	require.Equal(t, told, namingLog(told, "/logs/mount.log"))
}
