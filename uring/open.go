package uring

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Open starts an engine. ModeAuto makes a ring and reads through it; if that fails, it uses the
// pread engine. Status reports which engine is used and why. ModeUring fails instead.
func Open(mode Mode) (Engine, error) {
	switch mode {
	case ModePread:
		return openPread(""), nil
	case ModeUring:
		e, err := openProbed("")
		if err != nil {
			return nil, fmt.Errorf("io engine %s: %w; use %s or %s", mode, err, ModeAuto, ModePread)
		}
		return e, nil
	case ModeAuto:
		e, err := openProbed("a test read through a ring worked")
		if err != nil {
			return openPread(fmt.Sprintf("%v; reading with pread", err)), nil
		}
		return e, nil
	}
	return nil, fmt.Errorf("io engine %q is unknown: use %s, %s or %s", mode, ModeAuto, ModeUring, ModePread)
}

// openProbed starts the io_uring engine and reads through it. The error explains why io_uring can't
// be used, and the likely cause.
func openProbed(reason string) (*engine, error) {
	e, err := openUring(reason)
	if err != nil {
		return nil, explain(err)
	}
	if err := probe(e); err != nil {
		return nil, explain(errors.Join(err, e.Close()))
	}
	// The probe's reads must not be counted.
	e.reads.Store(0)
	e.readBytes.Store(0)
	return e, nil
}

// probe reads a file in memory: a kernel that emulates io_uring may support wake-ups but not files.
func probe(e *engine) error {
	const content = "lsiofs"
	fd, err := unix.MemfdCreate("lsiofs-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("probe io_uring: memfd_create: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Pwrite(fd, []byte(content), 0); err != nil {
		return fmt.Errorf("probe io_uring: write to memory file: %w", err)
	}
	type outcome struct {
		n   int
		err error
	}
	done := make(chan outcome, 1)
	buf := make([]byte, len(content)+1)
	e.Submit([]*Request{{FD: fd, Buf: buf, Done: func(n int, err error) { done <- outcome{n, err} }}})
	got := <-done
	switch {
	case got.err != nil:
		return fmt.Errorf("probe io_uring: read: %w", got.err)
	case string(buf[:got.n]) != content:
		return fmt.Errorf("probe io_uring: read %q instead of %q", buf[:got.n], content)
	}
	return nil
}

// explain adds the likely cause of an error of io_uring's system calls.
func explain(err error) error {
	const sysctl = "/proc/sys/kernel/io_uring_disabled"
	switch {
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w (blocked by the container's seccomp profile?)", err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		if setting, readErr := os.ReadFile(sysctl); readErr == nil {
			if value := strings.TrimSpace(string(setting)); value != "0" {
				return fmt.Errorf("%w (kernel.io_uring_disabled is %s)", err, value)
			}
		}
		return fmt.Errorf("%w (blocked by the container's seccomp profile?)", err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w (is the limit on locked memory too low, ulimit -l?)", err)
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("%w (is the limit on open files too low, ulimit -n?)", err)
	}
	return err
}
