package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code is the exit code of the process. Scripts rely on the codes: they are listed in every
// command's help, and their meanings never change.
type Code int

// The exit codes. The table below explains them.
const (
	OK          Code = 0
	Failure     Code = 1
	Usage       Code = 2
	Dataset     Code = 3
	Mount       Code = 4
	Checkpoint  Code = 5
	Check       Code = 6
	Verify      Code = 7
	NotYet      Code = 8
	Interrupted Code = 130 // 128 + SIGINT, as shells show it
	Pipe        Code = 141 // 128 + SIGPIPE, as shells show it
)

// codes is the table shown in the help.
var codes = []struct {
	Code    Code
	Name    string
	Meaning string
}{
	{OK, "ok", "success; for mount: unmounted by umount or by a signal"},
	{Failure, "failure", "any error that has no code of its own"},
	{Usage, "usage", "a flag, an argument or a combination of them is wrong"},
	{Dataset, "dataset", "the dataset is missing, empty, damaged or unreadable"},
	{Mount, "mount", "mounting or unmounting failed, or the mount is busy"},
	{Checkpoint, "checkpoint", "a checkpoint is malformed, or does not match the dataset or the order"},
	{Check, "check", "doctor or demo found a problem"},
	{Verify, "verify", "verify found damage"},
	{NotYet, "not yet", "next: not enough new data for the next epoch"},
	{Interrupted, "interrupted", "stopped by Ctrl-C or SIGTERM before the work was done"},
	{Pipe, "pipe", "the reader of stdout closed it"},
}

// Name returns the code's name, as used in the help and in JSON errors.
func (c Code) Name() string {
	for _, e := range codes {
		if e.Code == c {
			return e.Name
		}
	}
	return "unknown"
}

// Table returns the section on exit codes in every command's help.
func Table() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range codes {
		fmt.Fprintf(&b, "  %-4d%-12s %s\n", e.Code, e.Name, e.Meaning)
	}
	return b.String()
}

// codedError is an error with an exit code.
type codedError struct {
	code Code
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// With attaches a code to err. An error that has a code keeps it, nil stays nil, and a cancellation
// stays as it is, because OrInterrupted gives it a code.
func With(code Code, err error) error {
	if err == nil || hasCode(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return &codedError{code, err}
}

func hasCode(err error) bool {
	var c *codedError
	return errors.As(err, &c)
}

// OrInterrupted returns err or, if err only reports that ctx was cancelled, an error for users with
// the code Interrupted.
func OrInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) && !hasCode(err) {
		return Errorf(Interrupted, "interrupted")
	}
	return err
}

// Errorf is like fmt.Errorf, with a code.
func Errorf(code Code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

// Usagef returns an error about the command line.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// Join is like errors.Join, with a code.
func Join(code Code, problems []error) error {
	return With(code, errors.Join(problems...))
}

// CodeOf returns err's exit code, or Failure if it has none.
func CodeOf(err error) Code {
	var c *codedError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.code
	}
	return Failure
}

// ErrSilent ends a command that has already reported its error.
var ErrSilent = errors.New("")
