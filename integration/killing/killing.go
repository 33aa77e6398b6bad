// Package killing runs a program and kills it, like kill -9, right before one of its system calls
// that change files.
//
//	test ──starts──► its own program again ──filter, exec──► the program
//	  ▲                                                        │ before each call
//	  └────────── asked whether to continue  ◄─── kernel ◄─────┘
//
// The kernel's seccomp asks, so calls are counted over all threads in the order in which they come,
// and nothing happens between the question and the kill. A test program that uses the package calls
// Main in its TestMain.
package killing

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Call is a system call that changes a file or a directory, or makes it durable.
type Call struct {
	Name string // such as linkat
	Path string // what it changes; the new name for a link or a rename
}

func (c Call) String() string { return c.Name + " " + c.Path }

// ErrKilled means that the program was killed.
var ErrKilled = errors.New("killed")

// Run runs a program until it ends. It kills it before call number at, counted from 0, among those
// that concern a path below one of the given absolute directories; -1 never kills. It returns these
// calls, including the one that was not done.
//
// cmd must not be started; its output goes where cmd directs it. The error is ErrKilled, or that of
// a program that failed by itself. Run may be called concurrently.
func Run(cmd *exec.Cmd, at int, below ...string) (calls []Call, err error) {
	if os.Getenv(variable) != "" {
		return nil, errors.New("this program's TestMain does not call killing.Main")
	}
	ours, theirs, err := sockets()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	cmd.Args = append([]string{os.Args[0], cmd.Path}, cmd.Args[1:]...)
	cmd.Path = os.Args[0]
	cmd.ExtraFiles = []*os.File{theirs}
	// Signals of the Go runtime would interrupt calls, and the kernel would ask about them again.
	cmd.Env = append(cmd.Env, variable+"=1", "GODEBUG=asyncpreemptoff=1")
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return nil, err
	}
	listener, err := receive(ours)
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(fmt.Errorf("the kernel's seccomp can't ask: %w", err), cmd.Wait())
	}
	defer unix.Close(listener)
	calls, killed, err := watch(listener, cmd.Process, at, below)
	ended := cmd.Wait()
	switch {
	case err != nil:
		return nil, err
	case killed:
		return calls, ErrKilled
	}
	return calls, ended
}

// watch answers the kernel until the program has ended.
func watch(listener int, p *os.Process, at int, below []string) (calls []Call, killed bool, err error) {
	for {
		q, err := ask(listener)
		if errors.Is(err, io.EOF) {
			return calls, killed, nil
		}
		if err != nil {
			_ = p.Kill()
			return calls, killed, err
		}
		c := q.call()
		if !killed && concerns(c.Path, below) {
			calls = append(calls, c)
			if len(calls)-1 == at {
				killed = true
				if err := p.Kill(); err != nil {
					return calls, killed, err
				}
				continue
			}
		}
		if err := q.goOn(listener); err != nil {
			_ = p.Kill()
			return calls, killed, err
		}
	}
}

func concerns(path string, below []string) bool {
	for _, dir := range below {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

const variable = "LSIOFS_TEST_KILLING"

// Main becomes the program to be killed, if the process was started for that; otherwise it does
// nothing.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	fmt.Fprintln(os.Stderr, become(os.Args[1:]))
	os.Exit(1)
}
