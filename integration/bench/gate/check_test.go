package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// built is the lsiofs built from these sources.
type built struct {
	path   string
	remove func() error
}

var theBuilt = sync.OnceValues(func() (b built, err error) {
	b.path, b.remove, err = build(context.Background())
	return b, err
})

// A measurement starts this executable for its parts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.PartCommand {
		Main()
	}
	code := m.Run()
	if b, err := theBuilt(); err == nil {
		err = b.remove()
		if err != nil && code == 0 {
			code = 1
		}
	}
	os.Exit(code)
}

// try runs the command.
func try(ctx context.Context, promises []Promise, args ...string) (code exit.Code, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err, promises)
	return code, out.String(), err.String()
}

// ok runs the command, which must succeed.
func ok(t *testing.T, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := try(t.Context(), nil, args...)
	require.Equal(t, exit.OK, code, "%v: %s", args, stderr)
	return stdout
}

// records returns how many records lsiofs finds in a dataset.
func records(t *testing.T, dir string, flags ...string) uint64 {
	t.Helper()
	b, err := theBuilt()
	require.NoError(t, err)
	out, err := exec.Command(b.path, append([]string{"index", dir, "--json", "--index-dir", t.TempDir()}, flags...)...).Output()
	require.NoError(t, err)
	var s struct{ Records uint64 }
	require.NoError(t, json.Unmarshal(out, &s))
	return s.Records
}

// checking puts temporary directories of measurements below one that is checked at the end, and
// returns the flags of a short run with little memory.
func checking(t *testing.T) (flags []string) {
	t.Helper()
	if err := doctor.CanMount(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("CI=true, and nothing can be mounted here: %v", err)
		}
		t.Skipf("nothing can be mounted here: %v", err)
	}
	b, err := theBuilt()
	require.NoError(t, err)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	index := filepath.Join(t.TempDir(), "index")
	t.Cleanup(func() {
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left)
		mounts, err := fs.Mounts()
		require.NoError(t, err)
		for _, m := range mounts {
			require.NotContains(t, m.Point, tmp)
		}
	})
	return []string{"--check", "--lsiofs", b.path, "--memory", "64MiB", "--rounds", "1", "--seconds", "1", "--index-dir", index}
}

func TestCheckFailsIfPromiseIsBroken(t *testing.T) {
	parent := t.TempDir()
	data := filepath.Join(parent, "jsonl")
	ok(t, "--make", "jsonl", "--records", "3000", "--bytes", "1200", "--shards", "2", data)
	kept := Promise{Section: SectionJSONL, What: "kept", Row: "mount-1", Figure: FigureRatio, AtLeast: 1e-9}
	broken := Promise{Section: SectionJSONL, What: "broken", Row: "mount-1", Figure: FigureCPU, AtMost: 1e-9}
	missing := Promise{Section: SectionJSONL, What: "missing", Row: "mount-cold", Figure: FigureRatio, AtLeast: 1e9}
	other := Promise{Section: SectionTar, What: "other", Row: "mount-1", Figure: FigureRatio, AtLeast: 1e9}
	flags := append(checking(t), "--json", "--only", "jsonl", "--dir", filepath.Join(parent, "data"))
	check := func(promises []Promise, args ...string) (exit.Code, CheckReport, string) {
		code, stdout, stderr := try(t.Context(), promises, append(flags, args...)...)
		var r CheckReport
		require.NoError(t, json.Unmarshal([]byte(stdout), &r), stderr)
		return code, r, stderr
	}

	code, r, said := check([]Promise{kept, broken, missing, other}, data)
	require.Equal(t, exit.Check, code, said)
	require.Len(t, r.Checks, 3, "what is promised of tar does not apply")
	require.Equal(t, VerdictOK, r.Checks[0].Verdict)
	require.Equal(t, VerdictShort, r.Checks[1].Verdict)
	require.Positive(t, r.Checks[1].Measured.Median)
	require.Equal(t, VerdictNotMeasured, r.Checks[2].Verdict)
	require.Contains(t, r.Checks[2].Why, "too little for random reads")

	code, r, said = check([]Promise{kept, missing}, data)
	require.Equal(t, exit.OK, code, said)
	require.Len(t, r.Checks, 2)

	data = filepath.Join(parent, "fixed")
	ok(t, "--make", "fixed", "--records", "300", "--bytes", "500", data)
	code, r, said = check([]Promise{kept}, "--format", "fixed", "--record-bytes", "500", data)
	require.Equal(t, exit.OK, code, said)
	require.Contains(t, r.Checks[0].Why, "nothing is promised of fixed with records of 500 bytes")
}

func TestCheckRequiresDisk(t *testing.T) {
	flags := checking(t)
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Skip("no /dev/shm here")
	}
	dir, err := os.MkdirTemp("/dev/shm", "lsiofs-test-")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	code, _, stderr := try(t.Context(), Promises(), append(flags, "--dir", dir)...)
	require.Equal(t, exit.Failure, code)
	require.Contains(t, stderr, "is in memory: name a directory on a disk with --dir")
}

func TestCheckOfURLIsRefused(t *testing.T) {
	code, _, stderr := try(t.Context(), Promises(), "--check", "https://127.0.0.1:1/data/")
	require.Equal(t, exit.Usage, code)
	require.Contains(t, stderr, "--only network")
}
