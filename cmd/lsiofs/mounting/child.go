package mounting

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Child is a mount in a separate process.
type Child struct {
	Program string    // the path of lsiofs; "" for this program
	Args    []string  // of the mount, without the verb
	Output  *os.File  // its stdout and stderr
	detach  bool      // in a session of its own, outliving this process
	Cmd     *exec.Cmd // set once it is started
}

// Start starts the process and waits until its mount is ready, passing the child's reports on to
// rep. If it returns an error, the process has ended. If ctx ends first, it stops the process and
// waits for it.
func (c *Child) Start(ctx context.Context, rep Reporter) error {
	program := c.Program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	files := []*os.File{w}
	defer func() { closeAll(files) }()
	args := append([]string{"--ready-fd=3"}, c.Args...)
	var whole *os.File // delivers the arguments if not everyone may see them
	shown, secret := shownArgs(args)
	if secret {
		var from *os.File
		if from, whole, err = os.Pipe(); err != nil {
			return err
		}
		defer whole.Close()
		files = append(files, from)
		shown = append([]string{ArgsFlag + "4"}, shown...)
	}
	c.Cmd = exec.Command(program, append([]string{"mount"}, shown...)...)
	c.Cmd.Stdout, c.Cmd.Stderr = c.Output, c.Output
	c.Cmd.ExtraFiles = files
	// Either way this process handles a Ctrl-C at the terminal.
	c.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.detach, Setpgid: !c.detach}
	if c.detach {
		// Inherited descriptors must not outlive this process: they may hold locks, pipes, or
		// directories of file systems that are to be unmounted.
		_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	}
	err = c.Cmd.Start()
	closeAll(files)
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if secret {
		writeArgs(whole, args)
	}
	err = follow(r, rep)
	if !stop() {
		err = context.Canceled // it was stopped, whatever its own result was
	}
	rep.Ended(err)
	if err != nil {
		_ = c.Cmd.Wait() // err is more specific than its exit code
	}
	return err
}

// closeAll closes the files that the child has inherited. Errors from closing a file again don't
// matter.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// follow reads a child's messages until it is ready or has failed.
func follow(r io.Reader, rep Reporter) error {
	messages := json.NewDecoder(r)
	for {
		var m readyMessage
		if err := messages.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errWordless
			}
			return exit.With(exit.Mount, err)
		}
		switch {
		case m.Progress != nil:
			rep.Progress(*m.Progress)
		case m.Filling != nil:
			rep.Filling(*m.Filling)
		case m.Waiting != nil:
			rep.Waiting(*m.Waiting)
		case m.Warning != "":
			rep.Warn(m.Warning)
		case m.Trouble != "":
			rep.Trouble(m.Trouble)
		case m.Error != nil:
			return exit.Errorf(m.Error.Code, "%s", m.Error.Text)
		case m.Mounted != nil:
			rep.Mounted(*m.Mounted)
			return nil
		}
	}
}

// ArgsFlag is the flag, directly after the verb, with the descriptor that delivers a command's real
// arguments: those after the verb, each terminated by a zero byte. Arguments after the flag are
// then only for display. All users of a machine can see the arguments of its processes, but not
// what passes through a pipe.
const ArgsFlag = "--args-fd="

// shownArgs returns args in a form that everyone may see, and reports whether that differs: user
// names, passwords and queries are removed from URLs.
func shownArgs(args []string) (shown []string, secret bool) {
	for _, a := range args {
		// Only URLs contain secrets. Elsewhere ? is part of a pattern.
		if strings.Contains(a, "://") {
			if clean := remote.CleanText(a); clean != a {
				a, secret = clean, true
			}
		}
		shown = append(shown, a)
	}
	return shown, secret
}

// writeArgs writes the arguments for --args-fd to w and closes it. It ignores errors: they mean
// that the process has ended, and it reports the reason itself.
func writeArgs(w *os.File, args []string) {
	for _, a := range args {
		if _, err := io.WriteString(w, a+"\x00"); err != nil {
			break
		}
	}
	_ = w.Close()
}

// parentWatch detects that the process waiting for a mount's report has ended: the other end of its
// pipe is no longer open anywhere. The zero value watches nothing.
type parentWatch struct {
	end  *os.File // closing it ends the watch
	wait sync.WaitGroup
}

// begin starts to watch pipe. It calls gone from the watch's own goroutine when pipe no longer has
// a reader. pipe has to stay open until stop is called.
func (w *parentWatch) begin(pipe *os.File, gone func()) error {
	stopped, end, err := os.Pipe()
	if err != nil {
		return err
	}
	w.end = end
	w.wait.Go(func() {
		defer stopped.Close()
		if hasNoReader(pipe, stopped) {
			gone()
		}
	})
	return nil
}

// stop ends the watch. gone is not called afterwards. stop may be called again.
func (w *parentWatch) stop() {
	if w.end == nil {
		return
	}
	_ = w.end.Close()
	w.wait.Wait()
	w.end = nil
}

// hasNoReader waits until pipe no longer has a reader, and returns true, or until the other end of
// stopped is closed, and returns false.
func hasNoReader(pipe, stopped *os.File) bool {
	// No events are requested: the kernel reports closed ends anyway.
	ends := []unix.PollFd{{Fd: int32(pipe.Fd())}, {Fd: int32(stopped.Fd())}}
	for {
		_, err := unix.Poll(ends, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || ends[1].Revents != 0:
			return false
		default:
			return ends[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}
