package serve

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// scratchVariable is set to the scratch directory in the environment of all programs that a
	// test program starts. Daemons and servers in sessions of their own are found by it.
	scratchVariable = "LSIOFS_TEST_SCRATCH"
	// watchVariable makes a test program the watcher of a scratch directory.
	watchVariable = "LSIOFS_TEST_WATCH"
	// lockName is the file in a scratch directory that is locked while its test program lives.
	lockName = "lock"
	// scratchPrefix begins the names of all scratch directories.
	scratchPrefix = "lsiofs-"
)

// Scratch makes a directory for everything that a test program makes. When the test program has
// ended, in whatever way, whatever it left behind is removed: processes, mounts and the directory.
// Another process does this, which outlives the test program and waits for the end of a pipe.
// (PR_SET_PDEATHSIG would not do: it belongs to the thread that started a process, and daemons
// don't inherit it.) If that process is killed as well, the next test program takes over. A test
// program that calls Scratch must call Main first.
//
// remove is for an orderly end. It only removes the directory: the caller has to find and report
// anything else that is left.
func Scratch(name string) (dir string, remove func(), err error) {
	return scratchIn(os.TempDir(), name)
}

// ShortScratch is Scratch with a short path that other users may enter, like ShortDir, for tests
// whose mounts other users read or whose output contains the paths of mounts.
func ShortScratch(name string) (dir string, remove func(), err error) {
	dir, remove, err = scratchIn(shortPlace, name)
	if err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

func scratchIn(parent, name string) (dir string, remove func(), err error) {
	SweepAbandoned(filepath.Join(os.TempDir(), scratchPrefix+"*"), filepath.Join(shortPlace, scratchPrefix+"*"))
	dir, lock, err := Claim(parent, scratchPrefix+name+"-")
	if err != nil {
		return "", nil, err
	}
	unwatch, err := watch(dir)
	if err == nil {
		err = os.Setenv(scratchVariable, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir), lock.Close())
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		unwatch()
		_ = lock.Close() // it was only locked
	}, nil
}

// watch starts the process that sweeps dir after this one.
func watch(dir string) (end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command(self)
	cmd.Env = []string{watchVariable + "=" + dir, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	cmd.Dir, cmd.Stdin = "/", r
	// So that signals to the process group of the tests don't reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start what takes away the leftovers of tests: %w", err), w.Close())
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = w.Close()
	}, nil
}

// Main makes this process the watcher of a scratch directory if Scratch has started it for that. In
// that case it does not return.
func Main() {
	if dir := os.Getenv(watchVariable); dir != "" {
		os.Exit(Watch(dir))
	}
}

// Watch waits for the end of the standard input, whose other end a test program holds, removes what
// that program left behind, and returns an exit code.
func Watch(dir string) int {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
	code := 0
	if err := Sweep(dir); err != nil {
		code = 1
	}
	SweepAbandoned(filepath.Join(shortPlace, scratchPrefix+"*")) // those of the same tests
	return code
}

// Claim makes a directory whose name begins with prefix, and locks it for as long as lock is open.
func Claim(parent, prefix string) (dir string, lock *os.File, err error) {
	if dir, err = os.MkdirTemp(parent, prefix); err != nil {
		return "", nil, err
	}
	// Under its own name from the moment when it is locked, so that it is never seen free.
	name := filepath.Join(dir, lockName)
	lock, err = os.Create(name + "-new")
	if err == nil {
		err = errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.Rename(name+"-new", name))
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, lock, nil
}

// SweepAbandoned sweeps directories that match patterns, were claimed by processes of this user,
// and are not in use by a living one. It returns their paths. What can't be swept is left for the
// next call.
func SweepAbandoned(patterns ...string) (swept []string) {
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern)
		for _, dir := range dirs {
			lock := abandoned(dir)
			if lock == nil {
				continue
			}
			if Sweep(dir) == nil {
				swept = append(swept, dir)
			}
			_ = lock.Close()
		}
	}
	return swept
}

// abandoned takes the lock of a directory, if it has one that is free.
func abandoned(dir string) *os.File {
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil // one that was just made, or not a claimed one
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = f.Close()
		return nil
	}
	return f
}

// Sweep ends the processes of a scratch directory, detaches the mounts below it, and removes it.
func Sweep(dir string) error {
	// A process that was found may have started another one.
	for range 200 {
		pids := belongTo(dir)
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(10 * time.Millisecond)
	}
	points := MountsBelow(dir)
	for i := len(points) - 1; i >= 0; i-- { // innermost first
		Detach(points[i])
	}
	// Removing a tree must never descend into a mount.
	if points = MountsBelow(dir); len(points) > 0 {
		return fmt.Errorf("%s: still mounted: %q", dir, points)
	}
	return os.RemoveAll(dir)
}

// belongTo returns the processes whose program is below dir, or that descend from a test program
// with this scratch directory. It never includes this process.
func belongTo(dir string) (pids []int) {
	own := "\x00" + scratchVariable + "=" + dir + "\x00"
	for _, pid := range processes() {
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || pid == os.Getpid() {
			continue // of the kernel, of another user, or ended: then it has no environment either
		}
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if strings.HasPrefix(program, dir+"/") || strings.Contains("\x00"+string(environment), own) {
			pids = append(pids, pid)
		}
	}
	return pids
}
