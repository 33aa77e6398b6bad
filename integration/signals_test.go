package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// waiting is a client with a read that storage does not answer.
type waiting struct {
	*exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr bytes.Buffer
	backing        *backing.FileSystem
}

// waitsFor starts a client that reads a whole file whose bytes from 512 KiB on do not arrive, and
// returns when it waits for them.
func waitsFor(t *testing.T, b *backing.FileSystem, line ...string) *waiting {
	t.Helper()
	b.Fail(backing.Fault{Path: "a.bin", From: 512 << 10, Do: backing.Stall})
	w := &waiting{Cmd: exec.Command(line[0], line[1:]...), backing: b}
	w.Env = environment(filepath.Join(scratch, "tmp"))
	w.Stdout, w.Stderr = &w.stdout, &w.stderr
	w.WaitDelay = clientLimit
	var err error
	w.stdin, err = w.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, w.Start())
	t.Cleanup(func() {
		b.Fail()
		w.Process.Kill()
		w.Wait()
	})
	b.WaitStalled(1)
	return w
}

// requireAll lets storage answer, after a delay in which an impatient reader would have given up,
// and checks that the client has received all bytes.
func (w *waiting) requireAll(t *testing.T, want []byte) {
	t.Helper()
	time.Sleep(2 * time.Second)
	w.backing.Fail()
	requireEnd(t, w.Cmd, "storage has answered")
	require.Empty(t, w.stderr.String())
	require.Zero(t, w.ProcessState.ExitCode())
	requireSameBytes(t, want, w.stdout.Bytes(), "what the client read")
}

// signalledMount returns a mount whose worker-0 begins with shard a.bin of a backing file system,
// and the contents of worker-0's file.
func signalledMount(t *testing.T, starter ...string) (*mount, *backing.FileSystem, []byte) {
	t.Helper()
	whole := big(t)
	d, b := backingDataset(t, whole, backing.Options{})
	s := inOrder()
	m := startMountBy(t, starter, d, t.TempDir(), append(s.flags(), "--memory", "1MiB")...)
	require.NoError(t, m.waitUntilMounted())
	return m, b, newReference(t, whole).data(s, 0)
}

func compiled(t *testing.T, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	output(t, need(t, "cc"), "-O1", "-pthread", "-o", program, source)
	return program
}

const stdioSource = "testdata/stdio/main.c"

// childEnds is the start of a Python program: it handles the end of a child, which ends when stdin
// does.
const childEnds = `
import os, signal, subprocess, sys
signal.signal(signal.SIGCHLD, lambda *_: None)
child = subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
path = sys.argv[1]
`

// No other file system returns EINTR for a read of a file, so programs treat it as an error or as
// the end of the file.
func TestAReaderThatASignalDoesNotKillGetsAllItsBytes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client func(t *testing.T, path string) []string
		signal func(t *testing.T, w *waiting)
	}{
		"numpy.fromfile, a child ends": {
			func(t *testing.T, path string) []string {
				return []string{python(t, "numpy"), "-c", childEnds + `
import numpy
sys.stdout.buffer.write(numpy.fromfile(path, numpy.uint8).tobytes())
`, path}
			},
			func(t *testing.T, w *waiting) { require.NoError(t, w.stdin.Close()) },
		},
		"numpy.memmap, a child ends": {
			func(t *testing.T, path string) []string {
				return []string{python(t, "numpy"), "-c", childEnds + `
import numpy
sys.stdout.buffer.write(numpy.array(numpy.memmap(path, numpy.uint8, "r")).tobytes())
`, path}
			},
			func(t *testing.T, w *waiting) { require.NoError(t, w.stdin.Close()) },
		},
		"fread, stopped and continued": {
			func(t *testing.T, path string) []string { return []string{compiled(t, stdioSource), path} },
			func(t *testing.T, w *waiting) {
				for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGCONT} {
					require.NoError(t, w.Process.Signal(sig))
				}
			},
		},
		"fread, a tracer attaches": {
			func(t *testing.T, path string) []string { return []string{compiled(t, stdioSource), path} },
			func(t *testing.T, w *waiting) {
				tracer := exec.Command(need(t, "strace"), "-o", "/dev/null", "-p", fmt.Sprint(w.Process.Pid))
				said, err := tracer.StderrPipe()
				require.NoError(t, err)
				require.NoError(t, tracer.Start())
				line, _ := bufio.NewReader(said).ReadString('\n')
				require.Contains(t, line, "attached")
				t.Cleanup(func() {
					tracer.Process.Kill()
					tracer.Wait()
				})
			},
		},
		"fread, a timer with SA_RESTART": {
			func(t *testing.T, path string) []string { return []string{compiled(t, stdioSource), path, "timer"} },
			func(*testing.T, *waiting) {},
		},
		"a Go program, its runtime's own signal": {
			func(t *testing.T, path string) []string { return []string{lsiofsReader(t), path} },
			func(t *testing.T, w *waiting) { require.NoError(t, w.Process.Signal(syscall.SIGURG)) },
		},
		"numpy.fromfile in another PID namespace, a child ends": {
			func(t *testing.T, path string) []string {
				asRoot(t)
				return []string{need(t, "unshare"), "--pid", "--fork", python(t, "numpy"), "-c", childEnds + `
import numpy
sys.stdout.buffer.write(numpy.fromfile(path, numpy.uint8).tobytes())
`, path}
			},
			func(t *testing.T, w *waiting) { require.NoError(t, w.stdin.Close()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, b, want := signalledMount(t)
			w := waitsFor(t, b, c.client(t, m.path("worker-0.bin"))...)
			c.signal(t, w)
			w.requireAll(t, want)
		})
	}
}

// lsiofsReader returns a Go program that copies a file to stdout.
func lsiofsReader(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "copier")
	// Without a client's time limit: building takes longer on a busy machine.
	said, err := exec.Command(need(t, "go"), "build", "-o", program, "./testdata/copier").CombinedOutput()
	require.NoError(t, err, "%s", said)
	return program
}

// A client that dies is released at once, whatever signal it dies of, and whichever of its threads
// gets the signal.
func TestAReaderThatDiesOfASignalDoesNotWaitForStorage(t *testing.T) {
	t.Parallel()
	const reads = `
import ctypes, os, signal, sys, threading, time
path = sys.argv[1]
def read(): open(path, "rb", 0).read()
def thread():
    threading.Thread(target=read, daemon=True).start()
    sys.stdin.read()
signal.signal(signal.SIGINT, signal.SIG_DFL)
`
	alone, thread := reads+"read()", reads+"thread(); "
	send := func(sig syscall.Signal) func(*testing.T, *waiting) {
		return func(t *testing.T, w *waiting) { require.NoError(t, w.Process.Signal(sig)) }
	}
	goOn := func(t *testing.T, w *waiting) { require.NoError(t, w.stdin.Close()) }
	for name, c := range map[string]struct {
		program string
		signal  func(t *testing.T, w *waiting)
	}{
		"SIGINT":                             {alone, send(syscall.SIGINT)},
		"SIGTERM":                            {alone, send(syscall.SIGTERM)},
		"SIGKILL":                            {alone, send(syscall.SIGKILL)},
		"SIGQUIT, which leaves a dump":       {alone, send(syscall.SIGQUIT)},
		"SIGABRT, which leaves a dump":       {alone, send(syscall.SIGABRT)},
		"a signal of real time":              {alone, send(syscall.Signal(40))},
		"SIGTERM, another thread takes it":   {thread + "time.sleep(1000)", send(syscall.SIGTERM)},
		"SIGQUIT, another thread takes it":   {thread + "time.sleep(1000)", send(syscall.SIGQUIT)},
		"another thread ends the process":    {thread + "os._exit(3)", goOn},
		"another thread starts a program":    {thread + `os.execv("/bin/true", ["true"])`, goOn},
		"another thread aborts":              {thread + "os.abort()", goOn},
		"SIGTERM after one with a handler":   {reads + "signal.signal(signal.SIGUSR1, lambda *_: None); read()", func(t *testing.T, w *waiting) { send(syscall.SIGUSR1)(t, w); send(syscall.SIGTERM)(t, w) }},
		"SIGKILL of one that catches others": {reads + "[signal.signal(s, lambda *_: None) for s in (1, 2, 3, 15)]; read()", func(t *testing.T, w *waiting) { send(syscall.SIGTERM)(t, w); send(syscall.SIGKILL)(t, w) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, b, _ := signalledMount(t)
			w := waitsFor(t, b, python(t), "-c", c.program, m.path("worker-0.bin"))
			c.signal(t, w)
			requireEnd(t, w.Cmd, "it dies")
			require.NotZero(t, b.Stalled(), "storage has not answered")
		})
	}
}

// inNamespace returns a mount whose server is in its own PID namespace: like one in another
// container, it can't see processes outside.
func inNamespace(t *testing.T) (*mount, *backing.FileSystem, []byte) {
	t.Helper()
	asRoot(t)
	m, b, want := signalledMount(t, need(t, "unshare"), "--pid", "--fork")
	t.Cleanup(func() {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", m.cmd.Process.Pid))
		require.NoError(t, err)
		var server int
		_, err = fmt.Sscan(string(children), &server)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(server, syscall.SIGTERM))
		require.True(t, m.ended(clientLimit))
		m.requireNothingLeft()
	})
	return m, b, want
}

func TestAClientThatTheServerCanNotSeeIsWaitedForAMinuteAfterASignal(t *testing.T) {
	serve.Tier(t, serve.Night) // it takes a minute; fs tests the same with a fake clock
	t.Parallel()
	t.Run("a signal with a handler", func(t *testing.T) {
		t.Parallel()
		m, b, want := inNamespace(t)
		w := waitsFor(t, b, python(t, "numpy"), "-c", childEnds+`
import numpy
sys.stdout.buffer.write(numpy.fromfile(path, numpy.uint8).tobytes())
`, m.path("worker-0.bin"))
		require.NoError(t, w.stdin.Close())
		w.requireAll(t, want)
	})
	t.Run("it is killed", func(t *testing.T) {
		t.Parallel()
		m, b, _ := inNamespace(t)
		w := waitsFor(t, b, "cat", m.path("worker-0.bin"))
		require.NoError(t, w.Process.Kill())
		requireEnd(t, w.Cmd, "the minute is over")
		require.NotZero(t, b.Stalled(), "storage has not answered")
	})
}
