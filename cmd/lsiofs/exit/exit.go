package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code is how the process ends. The codes are a promise to scripts: they
// are listed in every command's help, and never change their meaning.
type Code int

// The codes; what they mean is in the table below.
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

// codes is the table that help shows.
var codes = []struct {
	Code    Code
	Name    string
	Meaning string
}{
	{OK, "ok", "done; for mount: unmounted, by umount or by a signal"},
	{Failure, "failure", "anything that has no code of its own"},
	{Usage, "usage", "a flag, an argument or a combination of them is wrong"},
	{Dataset, "dataset", "the dataset is missing, empty, damaged or unreadable"},
	{Mount, "mount", "mounting or unmounting failed, or the mount is busy"},
	{Checkpoint, "checkpoint", "a checkpoint is malformed, or does not fit the dataset or the order"},
	{Check, "check", "doctor or demo found something that does not work"},
	{Verify, "verify", "verify found something damaged"},
	{NotYet, "not yet", "next: too little is new for the next epoch"},
	{Interrupted, "interrupted", "Ctrl-C or SIGTERM before the work was done"},
	{Pipe, "pipe", "the reader of stdout went away"},
}

// Name is the code's word in the help, and in errors as JSON.
func (c Code) Name() string {
	for _, e := range codes {
		if e.Code == c {
			return e.Name
		}
	}
	return "unknown"
}

// Table is the part of every command's help about exit codes.
func Table() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range codes {
		fmt.Fprintf(&b, "  %-4d%-12s %s\n", e.Code, e.Name, e.Meaning)
	}
	return b.String()
}

// codedError is an error that knows how the process ends because of it.
type codedError struct {
	code Code
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// With gives err a code; an error that has one keeps it, nil stays nil, and a
// cancellation stays what it is: OrInterrupted gives it its code.
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

// OrInterrupted is err, or, where it is no more than the news that ctx has been
// cancelled, the error that says so to people.
func OrInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) && !hasCode(err) {
		return Errorf(Interrupted, "interrupted")
	}
	return err
}

// Errorf is fmt.Errorf with a code.
func Errorf(code Code, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

// Usagef is an error about the command line.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }

// Join is errors.Join with a code.
func Join(code Code, problems []error) error {
	return With(code, errors.Join(problems...))
}

// CodeOf is the code that a process ends with because of err: Failure where nobody
// has given it one.
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

// ErrSilent ends a command whose output has said everything.
var ErrSilent = errors.New("")
