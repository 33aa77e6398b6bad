// Package command runs the programs that filter: each in a process group of its own, which
// ends with it, with a limit of time, and with what it says on stderr told line by line.
//
//	Find ──► Program ──Start──► Process: Stdout, Stop, Wait
//	                 ──Serve──► Server: Ask, one unit after the other (package protocol)
//
// Whatever a program starts in its group is killed when the program ends, and when this
// process is killed the program is, too.
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
	// termGrace is what a process is given to end by itself, after SIGTERM.
	termGrace = 2 * time.Second
	// pipeGrace is how long, after a program has ended, its pipes may stay open: somebody
	// who left its process group has them.
	pipeGrace = 5 * time.Second
)

// Process is a program that runs. Its methods may be called concurrently.
type Process struct {
	// Stdout is read to its end by whoever started the process, before Wait.
	Stdout *Pipe // nil when it is told with stderr

	cmd      *exec.Cmd
	lines    *lines
	mu       sync.Mutex
	reaped   bool
	timedOut atomic.Bool
	ended    chan struct{} // closed once it has been waited for
	err      error         // of that
}

// start starts a program. stdin is closed here, and nil for none.
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
	_ = closeAll(stdin, errWrite, outWrite) // the process has its own
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

// ErrStart is wrapped by errors about a program that can't be started (any more), which
// what it is given is not to blame for.
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

// reap waits for the process, ends what it has left in its group, and then waits for the
// pipes. Until the process is reaped its number is nobody else's, nor its group's.
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
	_ = unix.Kill(-x.cmd.Process.Pid, unix.SIGKILL) // an error: nobody is left
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

// Stop ends the process and its group: with SIGTERM, and two seconds later with SIGKILL.
// It does not wait. It may be called at any time, and more than once.
func (x *Process) Stop() {
	x.signal(unix.SIGTERM)
	timer := time.AfterFunc(termGrace, func() { x.signal(unix.SIGKILL) })
	go func() { // ends with the process
		<-x.ended
		timer.Stop()
	}()
}

// limit stops the process unless the result is called within that time.
func (x *Process) limit(d time.Duration) (within func()) {
	timer := time.AfterFunc(d, func() {
		x.timedOut.Store(true)
		x.Stop()
	})
	return func() { timer.Stop() }
}

// Wait waits until the process has ended, and gives an error unless it has ended well:
// by itself, with exit status 0.
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

// errTimedOut is of a process that was killed.
var errTimedOut = errors.New("it took longer than --timeout, and was killed")
