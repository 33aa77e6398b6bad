package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// exitCode is how the process ends. The codes are a promise to scripts: they
// are listed in every command's help, and never change their meaning.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFailure     exitCode = 1
	exitUsage       exitCode = 2
	exitDataset     exitCode = 3
	exitMount       exitCode = 4
	exitCheckpoint  exitCode = 5
	exitCheck       exitCode = 6
	exitVerify      exitCode = 7
	exitInterrupted exitCode = 130 // 128 + SIGINT, as shells show it
	exitPipe        exitCode = 141 // 128 + SIGPIPE, as shells show it
)

// exitCodes is the table that help shows.
var exitCodes = []struct {
	Code    exitCode
	Name    string
	Meaning string
}{
	{exitOK, "ok", "done; for mount: unmounted, by umount or by a signal"},
	{exitFailure, "failure", "anything that has no code of its own"},
	{exitUsage, "usage", "a flag, an argument or a combination of them is wrong"},
	{exitDataset, "dataset", "the dataset is missing, empty, damaged or unreadable"},
	{exitMount, "mount", "mounting or unmounting failed, or the mount is busy"},
	{exitCheckpoint, "checkpoint", "a checkpoint is malformed, or does not fit the dataset or the order"},
	{exitCheck, "check", "doctor, demo or bench --check found something that does not work"},
	{exitVerify, "verify", "verify found something damaged"},
	{exitInterrupted, "interrupted", "Ctrl-C or SIGTERM before the work was done"},
	{exitPipe, "pipe", "the reader of stdout went away"},
}

func (c exitCode) name() string {
	for _, e := range exitCodes {
		if e.Code == c {
			return e.Name
		}
	}
	return "unknown"
}

// exitTable is the part of every command's help about exit codes.
func exitTable() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %-4d%-12s %s\n", e.Code, e.Name, e.Meaning)
	}
	return b.String()
}

// codedError is an error that knows how the process ends because of it.
type codedError struct {
	code exitCode
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// coded gives err a code; an error that has one keeps it, nil stays nil, and a
// cancellation stays what it is: interrupted gives it its code.
func coded(code exitCode, err error) error {
	if err == nil || hasCode(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return &codedError{code, err}
}

func hasCode(err error) bool {
	var c *codedError
	return errors.As(err, &c)
}

// interrupted is err, or, where it is no more than the news that ctx has been
// cancelled, the error that says so to people.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) && !hasCode(err) {
		return codedf(exitInterrupted, "interrupted")
	}
	return err
}

func codedf(code exitCode, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

func usagef(format string, args ...any) error { return codedf(exitUsage, format, args...) }

func errorCode(err error) exitCode {
	var c *codedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &c):
		return c.code
	}
	return exitFailure
}

// errSilent ends a command whose output has said everything.
var errSilent = errors.New("")
