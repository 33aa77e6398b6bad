package run

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var games = Info{Format: "lc0", Kind: "V6", Newest: "name"}

const twoShards = "lsiofs/1 dataset lc0\n100 835600 1 training.10.gz\n80 668480 1 training.9.gz\n"

func textOf(n int) []byte { return fmt.Appendf(nil, "lsiofs/1 dataset lc0\n%d 8 1 a.gz\n", n) }

func epochOf(n uint64) Epoch {
	return Epoch{Epoch: n, Shards: 1, Records: 2, Units: 3, Window: "500000units", Taken: "2026-11-21T22:28:47Z", By: "node/" + strconv.Itoa(os.Getpid())}
}

func opened(t require.TestingT, path string) *Directory {
	d, err := Open(path, games)
	require.NoError(t, err)
	return d
}

// namesIn returns the names in a directory, without temporary ones.
func namesIn(t require.TestingT, path string) (names []string) {
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSnapshotNameIsItsFingerprint(t *testing.T) {
	require.Equal(t, "8f296df5d33156eeca0e7e50ac078243a7b716c8098781a15423f056d317637d", Fingerprint([]byte(twoShards)))
}

func TestEpochsStartInOrderAndAreReadByAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs", "default")
	d := opened(t, path)
	latest, err := d.Latest()
	require.NoError(t, err)
	require.Equal(t, None, latest)
	_, err = d.Epoch(0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = d.Take(epochOf(1), textOf(1))
	require.ErrorIs(t, err, ErrBehind)
	other := opened(t, path)
	require.Equal(t, d.Info(), other.Info())
	for n := range uint64(5) {
		took, err := d.Take(epochOf(n), textOf(int(n)))
		require.NoError(t, err)
		require.Equal(t, Fingerprint(textOf(int(n))), took.Snapshot)
		lost, err := other.Take(epochOf(n), textOf(100))
		require.NoError(t, err)
		require.Equal(t, took, lost, "the first one wins")
		text, err := other.Snapshot(took.Snapshot)
		require.NoError(t, err)
		require.Equal(t, textOf(int(n)), text)
		latest, err = other.Latest()
		require.NoError(t, err)
		require.Equal(t, n, latest)
	}
	third, err := Read(path)
	require.NoError(t, err)
	latest, err = third.Latest()
	require.NoError(t, err)
	require.Equal(t, uint64(4), latest)
	for _, name := range namesIn(t, path) {
		require.NotContains(t, name, "tmp-")
	}
	out, err := exec.Command("sh", "-c", "zcat "+filepath.Join(path, "snapshots", Fingerprint(textOf(3))+".gz")+" | sha256sum").Output()
	require.NoError(t, err)
	require.Equal(t, Fingerprint(textOf(3))+"  -\n", string(out))
}

func TestRunOfOtherShardsIsRefused(t *testing.T) {
	path := t.TempDir()
	opened(t, path)
	for _, other := range []Info{{Format: "tar", Kind: "V6", Newest: "name"}, {Format: "lc0", Kind: "V7", Newest: "name"}, {Format: "lc0", Kind: "V6", Newest: "mtime"}} {
		_, err := Open(path, other)
		require.ErrorContains(t, err, "name another directory with --run")
	}
	_, err := Open(t.TempDir(), Info{Format: "lc0", Newest: "size"})
	require.ErrorContains(t, err, "neither name nor mtime")
	_, err = Open(t.TempDir(), Info{Format: "npy", Kind: strings.Repeat("x", 5000), Newest: "name"})
	require.ErrorContains(t, err, "fewer than 4096")
}

func TestAlteredFilesAreRefused(t *testing.T) {
	path := t.TempDir()
	d := opened(t, path)
	took, err := d.Take(epochOf(0), textOf(0))
	require.NoError(t, err)
	file := filepath.Join(path, "epoch-0")
	right, err := os.ReadFile(file)
	require.NoError(t, err)
	line, _, _ := strings.Cut(string(right), "\n")
	again := func(line string) string { return line + "\n" + Fingerprint([]byte(line+"\n")) + "\n" }
	require.Equal(t, string(right), again(line))
	for what, x := range map[string]struct{ text, why string }{
		"nothing":               {"", "it is damaged"},
		"one line":              {line + "\n", "it is damaged"},
		"another sum":           {line + "\n" + strings.Repeat("0", 64) + "\n", "it is damaged"},
		"a byte more":           {string(right) + "\n", "it is damaged"},
		"an edited line":        {strings.Replace(string(right), `"records":2`, `"records":3`, 1), "it is damaged"},
		"a future version":      {again(strings.Replace(line, `"version":1`, `"version":2,"x":[]`, 1)), "use a newer lsiofs"},
		"another run":           {again(strings.Replace(line, took.Run, strings.Repeat("0", 32), 1)), "and this is run " + took.Run},
		"another epoch":         {again(strings.Replace(line, `"epoch":0`, `"epoch":1`, 1)), "it is of epoch 1"},
		"a field more":          {again(strings.Replace(line, `"records":2`, `"records":2,"more":2`, 1)), "more"},
		"a field less":          {again(strings.Replace(line, `,"records":2`, ``, 1)), "its fields are not"},
		"fields in other order": {again(strings.Replace(line, `"shards":1,"records":2`, `"records":2,"shards":1`, 1)), "its fields are not"},
		"spaces":                {again(strings.Replace(line, `,"records"`, `, "records"`, 1)), "its fields are not"},
		"no snapshot":           {again(strings.Replace(line, took.Snapshot, "../../etc/passwd", 1)), "64 hexadecimal digits"},
		"no JSON":               {again("{"), "unexpected end"},
		"too long":              {strings.Repeat("x", 5000), "fewer than 4096"},
	} {
		require.NoError(t, os.WriteFile(file, []byte(x.text), 0o644))
		_, err := d.Epoch(0)
		require.ErrorContains(t, err, x.why, what)
		require.ErrorContains(t, err, file, what)
	}
	require.NoError(t, os.WriteFile(file, right, 0o644))
	require.NoError(t, os.Chmod(file, 0o666))
	_, err = d.Epoch(0)
	require.ErrorContains(t, err, "other users may write to it")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Symlink("/etc/hostname", file))
	_, err = d.Epoch(0)
	require.Error(t, err)

	snapshot := filepath.Join(path, snapshotName(took.Snapshot))
	for what, x := range map[string]struct{ text, why string }{
		"not packed": {"hello", "EOF"},
		"cut":        {string(must(packText(textOf(0)))[:20]), "EOF"},
		"another":    {string(must(packText(textOf(7)))), "its content does not match its name"},
	} {
		require.NoError(t, os.WriteFile(snapshot, []byte(x.text), 0o644))
		_, err := d.Snapshot(took.Snapshot)
		require.ErrorContains(t, err, x.why, what)
		require.ErrorContains(t, err, snapshot, what)
	}
	require.NoError(t, os.Remove(snapshot))
	_, err = d.Snapshot(took.Snapshot)
	require.ErrorIs(t, err, ErrGone)
	_, err = d.Snapshot("../run.json")
	require.ErrorContains(t, err, "not the name of a snapshot")
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestNewestSnapshotsAreRetained(t *testing.T) {
	path := t.TempDir()
	d := opened(t, path)
	old := time.Now().Add(-time.Hour)
	for n := range uint64(keptSnapshots + 20) {
		_, err := d.Take(epochOf(n), textOf(int(n)))
		require.NoError(t, err)
		at := old.Add(time.Duration(n) * time.Second) // time stamps of file systems are coarse
		require.NoError(t, os.Chtimes(filepath.Join(path, snapshotName(Fingerprint(textOf(int(n))))), at, at))
	}
	require.Len(t, namesIn(t, filepath.Join(path, snapshotsDir)), keptSnapshots)
	_, err := d.Snapshot(Fingerprint(textOf(10)))
	require.ErrorIs(t, err, ErrGone)
	_, err = d.Snapshot(Fingerprint(textOf(keptSnapshots + 19)))
	require.NoError(t, err)
	_, err = d.Epoch(0)
	require.NoError(t, err, "epochs are kept for ever")
}

func TestOldLeftoversOfKilledProcessAreRemoved(t *testing.T) {
	path := t.TempDir()
	opened(t, path)
	for name, age := range map[string]time.Duration{"tmp-old": 25 * time.Hour, "tmp-young": time.Hour} {
		file := filepath.Join(path, name)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(file, at, at))
	}
	opened(t, path)
	require.Equal(t, []string{"run.json", "snapshots", "tmp-young"}, namesIn(t, path))
}

// odd is a file system on which some calls behave differently.
type odd struct {
	kernel
	link_   func(from, to string) error
	rename_ func(from, to string) error
}

func (o odd) link(from, to string) error {
	if o.link_ != nil {
		return o.link_(from, to)
	}
	return o.kernel.link(from, to)
}

func (o odd) renameNew(from, to string) error {
	if o.rename_ != nil {
		return o.rename_(from, to)
	}
	return o.kernel.renameNew(from, to)
}

func TestLinkWithLostResponseCounts(t *testing.T) {
	path := t.TempDir()
	d, err := open(path, games, odd{link_: func(from, to string) error {
		if err := os.Link(from, to); err != nil {
			return err
		}
		return &os.LinkError{Op: "link", Old: from, New: to, Err: unix.EEXIST}
	}})
	require.NoError(t, err)
	took, err := d.Take(epochOf(0), textOf(0))
	require.NoError(t, err)
	require.Equal(t, Fingerprint(textOf(0)), took.Snapshot)
	require.Equal(t, []string{"epoch-0", "run.json", "snapshots"}, namesIn(t, path))
}

func TestWithoutHardLinksNonReplacingRenameIsUsed(t *testing.T) {
	path := t.TempDir()
	none := func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: unix.EPERM} }
	for n := range uint64(2) {
		d, err := open(path, games, odd{link_: none})
		require.NoError(t, err)
		took, err := d.Take(epochOf(n), textOf(int(n)))
		require.NoError(t, err)
		lost, err := opened(t, path).Take(epochOf(n), textOf(100))
		require.NoError(t, err)
		require.Equal(t, took, lost)
	}
	_, err := open(filepath.Join(path, "other"), games, odd{link_: none, rename_: func(string, string) error { return unix.EINVAL }})
	require.ErrorContains(t, err, "neither hard links nor renames that do not replace")
	require.Equal(t, []string{"snapshots"}, namesIn(t, filepath.Join(path, "other")))
}

func FuzzEpochFile(f *testing.F) {
	e := epochOf(3)
	e.Version, e.Run, e.Snapshot = Version, strings.Repeat("ab", 16), strings.Repeat("cd", 32)
	text := must(encode(&e))
	f.Add(text)
	f.Add(bytes.Replace(text, []byte("3"), []byte("4"), 1))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var e Epoch
		if decode(text, &e) != nil {
			return
		}
		require.Equal(t, string(text), string(must(encode(&e))))
	})
}

func TestWorldWritableRunDirectoryIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	opened(t, path)
	require.NoError(t, os.Chmod(path, 0o777))
	_, err := Open(path, games)
	require.ErrorContains(t, err, "other users may write to it (mode 0777): run chmod o-w")
	_, err = Read(path)
	require.ErrorContains(t, err, "other users may write to it")
	require.NoError(t, os.Chmod(path, 0o777|os.ModeSticky)) // only the owner of a file can remove it
	opened(t, path)
}
