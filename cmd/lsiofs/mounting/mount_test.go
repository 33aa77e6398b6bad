package mounting

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestMountPointChecks(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	mnt := filepath.Join(dir, "mnt")
	require.NoError(t, os.MkdirAll(filepath.Join(data, "sub"), 0o755))
	require.NoError(t, os.Mkdir(mnt, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(data, "sub"), filepath.Join(dir, "sneaky")))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))

	_, err := checkMountPoint(t.Context(), pointOf(mnt, data), spec.Spec{})
	require.NoError(t, err)
	_, err = checkMountPoint(t.Context(), pointOf(mnt, filepath.Join(data, "**", "*.tar")), spec.Spec{})
	require.NoError(t, err)
	_, err = checkMountPoint(t.Context(), pointOf(filepath.Join(data, "sub"), filepath.Join(data, "*.tar")), spec.Spec{})
	require.NoError(t, err, "a pattern without ** does not look into directories")
	full := filepath.Join(dir, "full")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "x"), 0o755))
	for path, says := range map[string]string{
		filepath.Join(dir, "none"):   "mkdir -p",
		file:                         "not a directory",
		full:                         "is not empty",
		dir:                          "would hide the dataset",
		data:                         "is the dataset itself",
		filepath.Join(data, "sub"):   "inside the dataset",
		filepath.Join(dir, "sneaky"): "inside the dataset",
		"/proc":                      "is in use: a file system of type proc",
	} {
		_, err := checkMountPoint(t.Context(), pointOf(path, data), spec.Spec{})
		require.ErrorContains(t, err, says, path)
		require.Equal(t, exit.Mount, exit.CodeOf(err))
	}
	_, err = checkMountPoint(t.Context(), pointOf(filepath.Join(data, "sub"), filepath.Join(data, "**", "*.tar")), spec.Spec{})
	require.ErrorContains(t, err, "inside the dataset", "a pattern's root counts")
}

func TestMountHoldersAreFound(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, "held"))
	require.NoError(t, err)
	defer f.Close()
	found := holders("/proc", dir, 0, os.ReadDir)
	require.Len(t, found, 1)
	require.Equal(t, os.Getpid(), found[0].PID)
	require.Equal(t, f.Name(), found[0].Uses)
	require.Empty(t, holders("/proc", dir, os.Getpid(), os.ReadDir))
	require.Contains(t, holdersText(found), f.Name())
	require.Empty(t, holders("/proc", filepath.Join(dir, "other"), 0, os.ReadDir))
	require.Contains(t, holdersText(nil), "not visible")
}

// The kernel does not show the mappings of a process that hangs in one.
func TestMountHoldersAreFoundDespiteProcessWithUnreadableMappings(t *testing.T) {
	proc, point := t.TempDir(), t.TempDir()
	for link, target := range map[string]string{"1/map_files/0-1": point + "/a", "2/map_files/0-1": "/elsewhere", "3/fd/0": point + "/c"} {
		link = filepath.Join(proc, link)
		require.NoError(t, os.MkdirAll(filepath.Dir(link), 0o755))
		require.NoError(t, os.Symlink(target, link))
	}
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	found := holders(proc, point, 0, func(dir string) ([]os.DirEntry, error) {
		if dir == filepath.Join(proc, "2", "map_files") {
			<-hangs
		}
		return os.ReadDir(dir)
	})
	require.Equal(t, []holder{{1, "", point + "/a"}, {3, "", point + "/c"}}, found)
}

func pointOf(point, dataset string) *Config {
	return &Config{Point: point, Dataset: dataset, Log: slog.New(slog.DiscardHandler)}
}

func TestMountPointThatHidesMixtureSourceIsRefused(t *testing.T) {
	mnt, data := t.TempDir(), t.TempDir()
	o := pointOf(mnt, "")
	o.Sources = []spec.Source{{Name: "a", Dataset: data}, {Name: "b", Dataset: filepath.Join(mnt, "b")}}
	_, err := checkMountPoint(t.Context(), o, spec.Spec{})
	require.ErrorContains(t, err, "would hide the dataset")
	o.Sources[1].Dataset = data
	_, err = checkMountPoint(t.Context(), o, spec.Spec{})
	require.NoError(t, err)
}

// Whatever a mount writes to its own mount point would get in the way of all later mounts.
func TestMountPointThatHidesOwnOutputIsRefused(t *testing.T) {
	mnt, data := t.TempDir(), t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(mnt, link))
	o := pointOf(mnt, data)
	for flag, s := range map[string]spec.Spec{
		"--index-dir": {IndexDir: filepath.Join(mnt, "a", "b")},
		"--spool-dir": {SpoolDir: filepath.Join(link, "spool")},
		"--cache-dir": {Cache: spec.Cache{Dir: mnt}},
		"--run":       {Grow: spec.Grow{Run: filepath.Join(mnt, "run")}},
	} {
		_, err := checkMountPoint(t.Context(), o, s)
		require.ErrorContains(t, err, flag)
	}
	_, err := o.openDaemonLog(filepath.Join(mnt, "log"), "", mnt)
	require.ErrorContains(t, err, "--log-file")
	t.Setenv("XDG_CACHE_HOME", mnt)
	_, err = checkMountPoint(t.Context(), o, spec.Spec{})
	require.ErrorContains(t, err, "--index-dir")
	left, err := os.ReadDir(mnt)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDropThatLeavesNothingWarns(t *testing.T) {
	deal := spec.Assignment{Workers: 4, Batch: 100, Dealing: spec.DealInterleaved, Tail: spec.TailDrop}
	require.Contains(t, emptyWorkers([]uint64{0, 0, 0, 0}, deal), "4 of 4 workers without records: a round of all workers takes 400")
	require.Empty(t, emptyWorkers([]uint64{100, 100, 100, 100}, deal))
	deal.Dealing = spec.DealContiguous
	require.Contains(t, emptyWorkers([]uint64{0, 0, 0, 0}, deal), "takes 4,")
	deal.Tail = spec.TailKeep
	require.Empty(t, emptyWorkers([]uint64{1, 0, 0, 0}, deal), "keep was asked for")
}
