// Package command runs filter programs: each in its own process group, which ends with it, with a
// time limit, and with its stderr passed on line by line.
//
//	Find ──► Program ──Start──► Process: Stdout, Stop, Wait
//	                 ──Serve──► Server: Ask, one unit after the other (protocol.go)
//
// All processes that a program starts in its group are killed when the program ends, and if this
// process is killed, so is the program.
package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/printable"
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

// Pipe is the read end of a pipe that a program writes to. It is for one reader; Close may be
// called at any time.
//
// Once the program has ended, reads have a deadline, because a process that left its group may hold
// the pipe forever. The deadline only applies to data that is not written yet: data already in the
// pipe can be read however late the reader is (for example because of a slow disk), and so can the
// end of the pipe if no process holds it.
type Pipe struct {
	file *os.File
	late bool // the deadline has passed
	left int  // then: how many bytes may still be read
}

// Read returns os.ErrDeadlineExceeded if another process holds the pipe and has not written by the
// deadline, and os.ErrClosed after Close.
func (p *Pipe) Read(b []byte) (n int, err error) {
	if !p.late {
		n, err = p.file.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	// The file's Read would check its deadline first.
	if closed := raw.Control(func(fd uintptr) { n, err = p.readLate(int(fd), b) }); closed != nil {
		return 0, os.ErrClosed
	}
	return n, err
}

// readLate reads without waiting.
func (p *Pipe) readLate(fd int, b []byte) (n int, err error) {
	if p.left == 0 {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err = again(func() (int, error) { return unix.Poll(look, 0) }); err != nil {
			return 0, err
		}
		held := look[0].Revents&unix.POLLHUP == 0
		if p.late && held {
			return 0, os.ErrDeadlineExceeded
		}
		// From a process that writes forever, read only what is in the pipe now.
		p.late = true
		if p.left, err = unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil {
			return 0, err
		}
		switch {
		case p.left == 0 && held:
			return 0, os.ErrDeadlineExceeded
		case p.left == 0:
			return 0, io.EOF
		}
	}
	n, err = again(func() (int, error) { return unix.Read(fd, b[:min(len(b), p.left)]) })
	if err != nil {
		return 0, err
	}
	p.left -= n
	return n, nil
}

// again repeats a call until it is not interrupted by a signal.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Close closes the pipe: from then on no process can write to it.
func (p *Pipe) Close() error { return p.file.Close() }

const (
	// maxLineBytes is the maximum length of a line; the rest is dropped.
	maxLineBytes = 4 << 10
	// maxLines is the maximum number of lines per shard: more is chatter.
	maxLines = 200
)

// lines passes on a program's output, line by line, with the shard that it is about.
type lines struct {
	said  func(about, line string)
	ended chan struct{} // closed at the end of the output

	mu    sync.Mutex
	about string // the current shard
	count int    // number of lines about it
	last  string
}

func newLines(from *Pipe, said func(about, line string), about string) *lines {
	l := &lines{said: said, about: about, ended: make(chan struct{})}
	go l.read(bufio.NewReaderSize(from, maxLineBytes))
	return l
}

// read reads until the pipe is closed or its deadline has passed.
func (l *lines) read(r *bufio.Reader) {
	defer close(l.ended)
	for rest := false; ; {
		text, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if !rest {
			l.tell(strings.TrimRight(string(text), "\r"))
		}
		rest = more
	}
}

func (l *lines) tell(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	l.mu.Lock()
	l.last = line
	l.count++
	about, n := l.about, l.count
	l.mu.Unlock()
	switch {
	case n < maxLines:
		l.said(about, line)
	case n == maxLines:
		l.said(about, "(its further output on this shard is left out)")
	}
}

// of sets the shard that the next lines are about.
func (l *lines) of(about string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.about != about {
		l.about, l.count = about, 0
	}
}

// lastWords returns the end of an error message, with the last line of output.
func (l *lines) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == "" {
		return ""
	}
	return fmt.Sprintf("; its last output was: %.200s", printable.Line(l.last))
}
