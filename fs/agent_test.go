package fs

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An agent is this test binary, started again as a client of a mount: a process that uses its own
// mount can deadlock. It reads one call per line.

const agentEnv = "LSIOFS_FS_TEST_AGENT"

// call is one system call for an agent; it names files by path or by FD.
type call struct {
	Op    string
	Path  string `json:",omitempty"`
	To    string `json:",omitempty"`
	FD    int    `json:",omitempty"`
	Flags int    `json:",omitempty"`
	Off   int64  `json:",omitempty"`
	N     int    `json:",omitempty"`
	Data  []byte `json:",omitempty"`
}

// answer is the result of a call. Errno is 0 for success.
type answer struct {
	Errno   syscall.Errno
	FD, N   int
	Data    []byte
	Size    int64
	Ino     uint64
	Mode    uint32
	Blocks  int64
	Blksize int64
	Names   []string
}

// runAgent serves calls until its input ends.
func runAgent(in io.Reader, out io.Writer) error {
	calls, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c call
		if err := calls.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var a answer
		if err := c.run(&a); err != nil {
			if !errors.As(err, &a.Errno) {
				return err
			}
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

func (c *call) run(a *answer) (err error) {
	switch c.Op {
	case "open":
		a.FD, err = unix.Open(c.Path, c.Flags|unix.O_CLOEXEC, 0o644)
	case "close":
		err = unix.Close(c.FD)
	case "pread":
		a.Data = make([]byte, c.N)
		n := 0
		n, err = unix.Pread(c.FD, a.Data, c.Off)
		a.Data = a.Data[:max(n, 0)]
	case "pwrite":
		a.N, err = unix.Pwrite(c.FD, c.Data, c.Off)
	case "write":
		a.N, err = unix.Write(c.FD, c.Data)
	case "fsync":
		err = unix.Fsync(c.FD)
	case "stat", "fstat":
		var st unix.Stat_t
		if c.Op == "stat" {
			err = unix.Stat(c.Path, &st)
		} else {
			err = unix.Fstat(c.FD, &st)
		}
		a.Size, a.Ino, a.Mode, a.Blocks, a.Blksize = st.Size, st.Ino, st.Mode, st.Blocks, int64(st.Blksize)
	case "list":
		entries, e := os.ReadDir(c.Path)
		for _, entry := range entries {
			a.Names = append(a.Names, entry.Name())
		}
		sort.Strings(a.Names)
		err = e
	case "read":
		a.Data, err = os.ReadFile(c.Path)
	case "truncate":
		err = unix.Truncate(c.Path, c.Off)
	case "ftruncate":
		err = unix.Ftruncate(c.FD, c.Off)
	case "rename":
		err = unix.Renameat2(unix.AT_FDCWD, c.Path, unix.AT_FDCWD, c.To, uint(c.Flags))
	case "unlink":
		err = unix.Unlink(c.Path)
	case "rmdir":
		err = unix.Rmdir(c.Path)
	case "mkdir":
		err = unix.Mkdir(c.Path, 0o755)
	case "chmod":
		err = unix.Chmod(c.Path, 0o600)
	case "link":
		err = unix.Link(c.Path, c.To)
	case "symlink":
		err = unix.Symlink(c.To, c.Path)
	case "mmap": // sums up to the mapped bytes themselves
		var m []byte
		if m, err = unix.Mmap(c.FD, 0, c.N, unix.PROT_READ, c.Flags); err == nil {
			a.Data = append([]byte(nil), m...)
			err = unix.Munmap(m)
		}
	default:
		return errors.New("no such call: " + c.Op)
	}
	return err
}

// callTimeout is the watchdog of one call. It ends calls that hang; working ones never take nearly
// as long, even on a slow machine.
const callTimeout = 90 * time.Second

// agent is a client process.
type agent struct {
	t       *testing.T
	cmd     *exec.Cmd
	calls   *json.Encoder
	answers *json.Decoder
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	// Under the race detector, every process waits for a second before it exits.
	cmd.Env = append(os.Environ(), agentEnv+"=agent", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	a := &agent{t: t, cmd: cmd, calls: json.NewEncoder(in), answers: json.NewDecoder(bufio.NewReader(out))}
	t.Cleanup(func() {
		_ = in.Close()
		watchdog := time.AfterFunc(callTimeout, func() { _ = cmd.Process.Kill() })
		defer watchdog.Stop()
		_ = cmd.Wait()
	})
	return a
}

// start sends a call without waiting for its answer.
func (a *agent) start(c call) {
	a.t.Helper()
	require.NoError(a.t, a.calls.Encode(c))
}

// wait receives the answer.
func (a *agent) wait() answer {
	a.t.Helper()
	watchdog := time.AfterFunc(callTimeout, func() { _ = a.cmd.Process.Kill() })
	defer watchdog.Stop()
	var r answer
	require.NoError(a.t, a.answers.Decode(&r), "no answer: the client hung or died")
	return r
}

func (a *agent) do(c call) answer {
	a.t.Helper()
	a.start(c)
	return a.wait()
}

// must is do for calls that must succeed.
func (a *agent) must(c call) answer {
	a.t.Helper()
	r := a.do(c)
	require.Equal(a.t, syscall.Errno(0), r.Errno, "%s %s: %v", c.Op, c.Path, r.Errno)
	return r
}

func (a *agent) open(path string, flags int) int {
	a.t.Helper()
	return a.must(call{Op: "open", Path: path, Flags: flags}).FD
}

func (a *agent) read(path string) string {
	a.t.Helper()
	return string(a.must(call{Op: "read", Path: path}).Data)
}

// need skips a test if a program is missing, and fails it in CI.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed here", program)
		}
		t.Skipf("%s is not installed here", program)
	}
}

// run runs a program in a directory, with a watchdog, and returns its output and its exit code.
//
// A shell changes to the directory: with exec.Cmd's Dir this process would wait for an answer from
// the mount that it serves itself, in the middle of a fork that stops its goroutines.
func run(t *testing.T, dir, name string, args ...string) (string, int) {
	t.Helper()
	need(t, name)
	cmd := exec.Command("sh", append([]string{"-c", `cd "$0" && exec "$@"`, dir, name}, args...)...)
	cmd.WaitDelay = callTimeout
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(callTimeout, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, cmd.ProcessState.ExitCode(), 0, "%s was killed: it hung", name)
	return out.String(), cmd.ProcessState.ExitCode()
}
