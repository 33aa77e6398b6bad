// Package command runs filter programs: each in its own process group, which ends with it, with a
// time limit, and with its stderr passed on line by line.
//
//	Find ──► Program ──Start──► Process: Stdout, Stop, Wait
//	                 ──Serve──► Server: Ask, one unit after the other (package protocol)
//
// All processes that a program starts in its group are killed when the program ends, and if this
// process is killed, so is the program.
package command

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// termGrace is the time that a process gets to end after SIGTERM.
	termGrace = 2 * time.Second
	// pipeGrace is how long a program's pipes may stay open after it has ended: a process that left
	// its group may hold them.
	pipeGrace = 5 * time.Second
)

// Process is a running program. Its methods may be called concurrently.
type Process struct {
	// The caller who started the process must read Stdout to its end before Wait.
	Stdout *Pipe // nil if it is merged with stderr

	cmd      *exec.Cmd
	lines    *lines
	mu       sync.Mutex
	reaped   bool
	timedOut atomic.Bool
	ended    chan struct{} // closed once the process has been waited for
	err      error         // the result of waiting
}

// start starts a program. stdin is closed here, and may be nil.
func start(p *Program, argv []string, stdin *os.File, about string, mergeStdout bool) (*Process, error) {
	x := &Process{cmd: exec.Command(p.path, argv[1:]...), ended: make(chan struct{})}
	x.cmd.Args[0] = argv[0]
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(notStarted(argv, err), closeAll(stdin))
	}
	x.cmd.Stdin, x.cmd.Stderr, x.cmd.Stdout = nil, errWrite, errWrite
	if stdin != nil {
		x.cmd.Stdin = stdin
	}
	var outWrite *os.File
	if !mergeStdout {
		var outRead *os.File
		if outRead, outWrite, err = os.Pipe(); err != nil {
			return nil, errors.Join(notStarted(argv, err), closeAll(stdin, errRead, errWrite))
		}
		x.Stdout = &Pipe{file: outRead}
		x.cmd.Stdout = outWrite
	}
	err = x.cmd.Start()
	_ = closeAll(stdin, errWrite, outWrite) // the process has its own copies
	if err != nil {
		_ = errRead.Close()
		if x.Stdout != nil {
			_ = x.Stdout.Close()
		}
		return nil, notStarted(argv, err)
	}
	x.lines = newLines(&Pipe{file: errRead}, p.said, about)
	go x.reap(errRead)
	return x, nil
}

// ErrStart is wrapped by errors about a program that can't be started (any more), whatever its
// input.
var ErrStart = errors.New("nothing more can be filtered until it starts again")

func notStarted(argv []string, err error) error {
	return fmt.Errorf("start %s: %w: %w", argv[0], err, ErrStart)
}

func closeAll(files ...*os.File) (err error) {
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// reap waits for the process, kills the remaining processes of its group, and then waits for the
// pipes. Until the process is reaped, its number and that of its group are not reused.
func (x *Process) reap(stderr *os.File) {
	defer close(x.ended)
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, x.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	x.mu.Lock()
	_ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL) // an error: none is left
	x.err = x.cmd.Wait()
	x.reaped = true
	x.mu.Unlock()
	until := time.Now().Add(pipeGrace)
	if x.Stdout != nil {
		_ = x.Stdout.file.SetReadDeadline(until) // an error: it is closed
	}
	_ = stderr.SetReadDeadline(until)
	<-x.lines.ended
	_ = stderr.Close()
}

// signal sends a signal to the whole group.
func (x *Process) signal(s syscall.Signal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.reaped {
		_ = unix.Kill(-x.cmd.Process.Pid, s) // an error: it is about to be reaped
	}
}

// Stop ends the process and its group: with SIGTERM, and two seconds later with SIGKILL. It does
// not wait. It may be called at any time, and more than once.
func (x *Process) Stop() {
	x.signal(unix.SIGTERM)
	timer := time.AfterFunc(termGrace, func() { x.signal(unix.SIGKILL) })
	go func() { // ends with the process
		<-x.ended
		timer.Stop()
	}()
}

// limit stops the process after d, unless the returned function is called before.
func (x *Process) limit(d time.Duration) (within func()) {
	timer := time.AfterFunc(d, func() {
		x.timedOut.Store(true)
		x.Stop()
	})
	return func() { timer.Stop() }
}

// Wait waits until the process has ended, and returns an error unless it ended by itself with exit
// status 0.
func (x *Process) Wait() error {
	<-x.ended
	switch {
	case x.timedOut.Load():
		return errTimedOut
	case x.err != nil:
		return fmt.Errorf("it ended: %w%s", x.err, x.lines.lastWords())
	}
	return nil
}

// errTimedOut means that the process was killed after its timeout.
var errTimedOut = errors.New("it took longer than --timeout, and was killed")
