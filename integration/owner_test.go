package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two ordinary users who share nothing.
const (
	nobody   = 65534
	stranger = 65533
)

// runAs runs a program as another user, which requires root.
func runAs(t *testing.T, uid int, env []string, program string, args ...string) result {
	t.Helper()
	id := fmt.Sprint(uid)
	return command(t, env, nil, need(t, "setpriv"), append([]string{"--reuid=" + id, "--regid=" + id, "--clear-groups", program}, args...)...)
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "being several users takes root")
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode()
}

func TestAMountIsItsOwnersAloneUnlessOthersAreAllowed(t *testing.T) {
	needFUSE(t)
	asRoot(t)
	openToOthers(t)
	d := plain(t, "jsonl", 3)
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("others allowed: %v", allowed), func(t *testing.T) {
			var flags []string
			modes := map[string]fs.FileMode{"": fs.ModeDir | 0o700, "epoch-0": fs.ModeDir | 0o500, "checkpoint": 0o600, "worker-0.jsonl": 0o400, "status": 0o400}
			if allowed {
				flags = []string{"--allow-other"}
				modes = map[string]fs.FileMode{"": fs.ModeDir | 0o755, "epoch-0": fs.ModeDir | 0o555, "checkpoint": 0o644, "worker-0.jsonl": 0o444, "status": 0o444}
			}
			m := mountDataset(t, d, usual(), flags...)
			letOthersThrough(t, filepath.Dir(m.dir))
			for name, want := range modes {
				require.Equal(t, want, modeOf(t, m.path("%s", name)), name)
				info, err := os.Stat(m.path("%s", name))
				require.NoError(t, err)
				require.EqualValues(t, 0, info.Sys().(*syscall.Stat_t).Uid)
			}
			before := string(m.read("checkpoint"))
			for _, script := range []string{`ls "$1"`, `stat "$1"/status`, `cat "$1"/epoch-0/worker-0-of-1.jsonl`} {
				r := runAs(t, stranger, nil, "sh", "-c", script, "sh", m.dir)
				require.Equal(t, allowed, r.code == 0, "%s: %s", script, r.stderr)
				if !allowed {
					require.Empty(t, r.stdout)
					require.Contains(t, r.stderr, "ermission denied")
				}
			}
			for _, script := range []string{
				`echo '{"epoch": 3}' > "$1"/checkpoint`, `echo '{"epoch": 3}' > "$1"/new && mv "$1"/new "$1"/checkpoint`,
				`rm -f "$1"/checkpoint`, `truncate -s 0 "$1"/checkpoint`, `chmod 666 "$1"/checkpoint`,
			} {
				r := runAs(t, stranger, nil, "sh", "-c", script, "sh", m.dir)
				require.NotZero(t, r.code, script)
			}
			require.Equal(t, before, string(m.read("checkpoint")))
			require.NotContains(t, names(t, m.dir), "new")
		})
	}
}

func TestAllUsersMayRestoreIfAllowedButWriteNothingElse(t *testing.T) {
	needFUSE(t)
	asRoot(t)
	openToOthers(t)
	m := mountDataset(t, plain(t, "jsonl", 3), usual(), "--allow-other", "--restore", "all")
	letOthersThrough(t, filepath.Dir(m.dir))
	require.Equal(t, fs.FileMode(0o666), modeOf(t, m.path("checkpoint")))
	for _, script := range []string{
		`echo '{"epoch": 3}' > "$1"/new`, `rm -f "$1"/checkpoint`, `chmod 600 "$1"/checkpoint`, `echo x > "$1"/worker-0.jsonl`,
	} {
		require.NotZero(t, runAs(t, stranger, nil, "sh", "-c", script, "sh", m.dir).code, script)
	}
	r := runAs(t, stranger, nil, "sh", "-c", `echo '{"epoch": 3}' > "$1"/checkpoint`, "sh", m.dir)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, string(m.read("checkpoint")), `"epoch": 3`)

	refused := tool(t, "mount", "--restore", "all", t.TempDir(), t.TempDir())
	require.Contains(t, string(refused.stderr), "--restore all needs --allow-other")
}

// A user who may not mount at a directory is refused before the dataset is indexed.
func TestUserIsRefusedBeforeDatasetIsIndexed(t *testing.T) {
	needFUSE(t)
	asRoot(t)
	lsiofs := openToOthers(t)
	d := plain(t, "jsonl", 3)
	dir := t.TempDir()
	letOthersThrough(t, d.dir, dir)
	index, point := filepath.Join(dir, "index"), filepath.Join(dir, "point")
	require.NoError(t, os.Mkdir(index, 0o700))
	require.NoError(t, os.Chown(index, nobody, nobody))
	require.NoError(t, os.Mkdir(point, 0o755))
	for _, flags := range [][]string{nil, {"--daemon"}} {
		r := runAs(t, nobody, nil, lsiofs, append([]string{"mount", d.dir, point, "--index-dir", index}, flags...)...)
		require.Equal(t, 4, r.code)
		require.Contains(t, r.stderr, point+": this user may not mount there")
		require.Empty(t, names(t, index))
	}
}

// The kernel admits only the user who mounted.
func TestAUsersMountIsClosedToRootToo(t *testing.T) {
	needFUSE(t)
	asRoot(t)
	need(t, "fusermount3")
	lsiofs := openToOthers(t)
	d := plain(t, "jsonl", 3)
	dir, home := t.TempDir(), t.TempDir()
	letOthersThrough(t, d.dir, dir, home)
	require.NoError(t, errors.Join(os.Chown(dir, nobody, nobody), os.Chown(home, nobody, nobody)))
	t.Cleanup(func() {
		if isMount(dir) {
			detach(dir)
		}
	})
	env := []string{"HOME=" + home, "XDG_CACHE_HOME=" + home, "TMPDIR=" + home}
	r := runAs(t, nobody, env, lsiofs, "mount", d.dir, dir, "--daemon")
	require.Zero(t, r.code, r.stderr)
	_, err := os.ReadDir(dir)
	require.ErrorIs(t, err, syscall.EACCES)
	_, err = os.ReadFile(filepath.Join(dir, "status"))
	require.ErrorIs(t, err, syscall.EACCES)
	r = runAs(t, nobody, env, "cat", filepath.Join(dir, "status"))
	require.Zero(t, r.code, r.stderr)
	r = runAs(t, nobody, env, lsiofs, "umount", dir)
	require.Zero(t, r.code, r.stderr)
	requireServersEnd(t, lsiofs)
}

// Whatever the umask is, indexes and the files next to them, logs, spools, saved and merged
// checkpoints are only accessible to their owner.
func TestWhatIsWrittenIsItsOwnersAlone(t *testing.T) {
	needFUSE(t)
	dir, home := t.TempDir(), t.TempDir()
	data := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.Mkdir(data, 0o755))
	for i := range 4 {
		require.NoError(t, os.WriteFile(filepath.Join(data, fmt.Sprintf("%d.jsonl.gz", i)), gzipOf([]byte(strings.Repeat("{\"n\": 1}\n", 1000)), 300), 0o644))
	}
	t.Cleanup(func() {
		if isMount(dir) {
			detach(dir)
		}
	})
	run := func(script string, args ...string) {
		t.Helper()
		r := command(t, []string{"HOME=" + home, "XDG_CACHE_HOME=" + home}, nil, "sh", append([]string{"-ec", "umask 0; " + script, "sh", lsiofs, data, dir, home}, args...)...)
		require.Zero(t, r.code, r.stderr)
	}
	run(`"$1" mount "$2" "$3" --daemon --read spool --memory 1MiB; head -c 100000 "$3"/worker-0.jsonl > /dev/null
		"$1" checkpoint save "$3" "$4"/saved.json; "$1" checkpoint merge "$4"/saved.json -o "$4"/merged.json`)
	spools := 0
	for _, pid := range serverProcesses() {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		for _, d := range descriptors {
			if target, _ := os.Readlink(d); strings.HasPrefix(target, home) && strings.Contains(target, "spool") {
				info, err := os.Stat(d)
				require.NoError(t, err)
				require.Equal(t, fs.FileMode(0o600), info.Mode(), target)
				spools++
			}
		}
	}
	require.NotZero(t, spools, "the mount has a spool")
	run(`"$1" umount "$3"`)
	requireServersEnd(t) // they write until they end
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(home, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == home {
			return err
		}
		want := fs.FileMode(0o600)
		if e.IsDir() {
			want = fs.ModeDir | 0o700
		}
		require.Equal(t, want, modeOf(t, path), path)
		found[filepath.Ext(path)] = true
		return nil
	}))
	for _, ending := range []string{".index", ".json", ".log", ".gz"} {
		require.True(t, found[ending], "a file %s was written", ending)
	}
}

// TestSavingFollowsNoLinkThatSomebodyElsePlanted saves in a directory that all users may write to,
// such as /tmp. Neither the checkpoint nor its temporary file goes through a link.
func TestSavingFollowsNoLinkThatSomebodyElsePlanted(t *testing.T) {
	asRoot(t)
	lsiofs := openToOthers(t)
	shared, own := t.TempDir(), t.TempDir()
	letOthersThrough(t, shared, own)
	require.NoError(t, errors.Join(os.Chmod(shared, fs.ModeSticky|0o777), os.Chown(own, nobody, nobody)))
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	saved := filepath.Join(own, "saved.json")
	require.NoError(t, os.WriteFile(saved, m.read("checkpoint"), 0o644))
	victim, link := filepath.Join(own, "victim"), filepath.Join(shared, "ckpt.json")
	require.NoError(t, errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Chown(victim, nobody, nobody)))
	requireUnharmed := func() {
		t.Helper()
		b, err := os.ReadFile(victim)
		require.NoError(t, err)
		require.Equal(t, "precious", string(b))
		require.Equal(t, []string{"ckpt.json"}, names(t, shared), "and nothing is left")
	}
	plant := func() {
		t.Helper()
		_ = os.Remove(link)
		r := runAs(t, stranger, nil, "ln", "-s", victim, link)
		require.Zero(t, r.code, r.stderr)
	}

	plant()
	r := runAs(t, nobody, nil, lsiofs, "checkpoint", "merge", saved, "-o", link)
	require.NotZero(t, r.code, "the directory is sticky: a stranger's link can't be replaced")
	require.Contains(t, r.stderr, link)
	require.Equal(t, fs.ModeSymlink, modeOf(t, link).Type())
	requireUnharmed()

	toolOK(t, "checkpoint", "save", m.dir, link) // root may replace it
	require.Equal(t, fs.FileMode(0o600), modeOf(t, link), "in place of the link")
	requireUnharmed()

	// Names that begin like those of temporary files are not used.
	plant()
	for _, name := range []string{".lsiofs-checkpoint-", ".lsiofs-checkpoint-0", ".lsiofs-checkpoint-1"} {
		r := runAs(t, stranger, nil, "ln", "-s", victim, filepath.Join(shared, name))
		require.Zero(t, r.code, r.stderr)
		defer os.Remove(filepath.Join(shared, name))
	}
	toolOK(t, "checkpoint", "save", m.dir, link)
	b, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))
}

// Training may run as another user than the mount. Then the mount needs a flag for that, and warns
// without it.
func TestOnlyReadsOfTrainingUsersCount(t *testing.T) {
	needFUSE(t)
	asRoot(t)
	openToOthers(t)
	d := plain(t, "jsonl", 3)
	for _, flags := range [][]string{{"--allow-other"}, {"--allow-other", "--readers", "nobody"}} {
		m := mountDataset(t, d, usual(), flags...)
		letOthersThrough(t, filepath.Dir(m.dir))
		before := string(m.read("checkpoint"))
		for _, script := range []string{`head -c 20 "$1"`, `cat "$1"`} {
			r := runAs(t, nobody, nil, "sh", "-c", script, "sh", m.path("worker-0.jsonl"))
			require.Zero(t, r.code, r.stderr)
		}
		if len(flags) > 1 {
			require.NotEqual(t, before, string(m.read("checkpoint")))
			require.NotContains(t, m.log.String(), "the checkpoint ")
			continue
		}
		require.Equal(t, before, string(m.read("checkpoint")))
		m.requireLog("name the users who train with --readers")
		m.requireLog("the checkpoint does not count this user's reads")
		require.Contains(t, string(m.read("status")), "if this user trains, mount with --readers 65534")
	}
	r := tool(t, "mount", d.dir, t.TempDir(), "--readers", "nobody")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--readers needs --allow-other")
}
