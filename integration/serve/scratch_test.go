package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// killedVariable makes this program a test program that is killed. Its value is the path of lsiofs.
const killedVariable = "LSIOFS_TEST_KILLED"

func TestMain(m *testing.M) {
	Main()
	if lsiofs := os.Getenv(killedVariable); lsiofs != "" {
		fmt.Println(mountAndStay(lsiofs))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// mountAndStay starts in a scratch directory what tests start: a server, a daemon, and another
// program in its own session. It prints the directory, and only returns with an error.
func mountAndStay(lsiofs string) error {
	dir, _, err := Scratch("killed")
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "lsiofs")
	data, points := filepath.Join(dir, "data"), []string{filepath.Join(dir, "a point"), filepath.Join(dir, "daemon")}
	err = os.Link(lsiofs, program)
	for _, d := range append(points, data) {
		err = errors.Join(err, os.Mkdir(d, 0o700))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(data, "a.jsonl"), []byte("{}\n"), 0o600)); err != nil {
		return err
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{"mount", data, "--index-dir", dir}, args...)...)
		cmd.Env = Environment(dir, dir)
		return cmd
	}
	server, err := Start(command(points[0]), points[0])
	if err != nil {
		return err
	}
	if err := server.WaitUntilMounted(); err != nil {
		return err
	}
	if text, err := command(points[1], "--daemon").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		return err
	}
	fmt.Println(dir)
	select {}
}

// watcherOf returns the process that watches a scratch directory.
func watcherOf(t *testing.T, dir string) int {
	t.Helper()
	for _, pid := range processes() {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && strings.HasPrefix(string(b), watchVariable+"="+dir+"\x00") {
			return pid
		}
	}
	t.Fatalf("nobody watches %s", dir)
	return 0
}

func TestNothingRemainsOfKilledTestProgram(t *testing.T) {
	NeedFUSE(t)
	program := filepath.Join(t.TempDir(), "lsiofs")
	require.NoError(t, Build(program, "../../cmd/lsiofs"))
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "SIGKILL, with its watcher": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), killedVariable+"="+program, "TMPDIR="+tmp)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			dir := strings.TrimSpace(line)
			require.DirExists(t, dir, "what the test program said")
			require.Len(t, MountsBelow(dir), 2)
			require.Len(t, Processes(filepath.Join(dir, "lsiofs")), 2)
			require.Len(t, belongTo(dir), 3)
			watcher := watcherOf(t, dir)
			require.Empty(t, SweepAbandoned(filepath.Join(tmp, "*")), "the test program lives")

			alone := strings.Contains(name, "watcher")
			if alone {
				require.NoError(t, syscall.Kill(watcher, syscall.SIGKILL))
			}
			require.NoError(t, cmd.Process.Signal(signal))
			require.Error(t, cmd.Wait())
			if alone {
				require.Len(t, MountsBelow(dir), 2)
				require.Equal(t, []string{dir}, SweepAbandoned(filepath.Join(tmp, "*")), "the next test program does it")
			}
			require.Eventually(t, func() bool {
				_, err := os.Lstat(dir)
				return errors.Is(err, fs.ErrNotExist)
			}, 4*time.Minute, 10*time.Millisecond)
			require.Empty(t, MountsBelow(dir))
			require.Empty(t, belongTo(dir))
		})
	}
}

// Only directories of tests are swept: a directory that was not claimed, and files of others, stay.
func TestOnlyClaimedDirectoriesAreSwept(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(parent, "lsiofs-unclaimed"), 0o700))
	linked, lock, err := Claim(parent, "linked-")
	require.NoError(t, err)
	require.NoError(t, lock.Close())
	require.NoError(t, os.Symlink(linked, filepath.Join(parent, "lsiofs-link")))
	claimed, lock, err := Claim(parent, "lsiofs-")
	require.NoError(t, err)
	pattern := filepath.Join(parent, "lsiofs-*")
	require.Empty(t, SweepAbandoned(pattern))
	require.NoError(t, lock.Close())
	require.Equal(t, []string{claimed}, SweepAbandoned(pattern))
	require.NoDirExists(t, claimed)
	require.DirExists(t, filepath.Join(parent, "lsiofs-unclaimed"))
	require.DirExists(t, linked)
}

func TestShortDirIsAlwaysShortAndOthersMayEnterIt(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var dir string
	t.Run("in use", func(t *testing.T) {
		dir = ShortDir(t)
		require.Less(t, len(dir), 32, "108 bytes of a socket's path are for other names")
		for d := dir; d != shortPlace; d = filepath.Dir(d) {
			info, err := os.Stat(d)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o001), info.Mode()&0o003, "others may enter %s, and not write to it", d)
		}
	})
	require.NoDirExists(t, filepath.Dir(dir), "it goes with its test")
}
