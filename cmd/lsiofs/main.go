// Command lsiofs mounts a dataset as shuffled training streams.
//
// A verb's file (cmd_mount.go, …) has its flags, its help text and what it does, or a call of the
// package below that does it. cmd_doctor.go also has tune, top, demo and version; cmd_mount.go also
// has umount. flags*.go have the flags that several verbs share: those of what is read
// (flags_dataset.go), and in which order (flags_order.go). The packages below do not know about
// flags. They write to a terminal.UI and return errors, which may carry an exit code (package exit).
// Only main prints errors and ends the process.
//
//	cmd_*.go ──► mounting · demo · bench · doctor · page · inspect · readplan
//	             top · tune · cache
//	                 │
//	                 ▼
//	             opening · build
//	                 │
//	                 ▼
//	             terminal · exit
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func main() {
	os.Exit(int(runSignalled(os.Args[1:], os.Stdout, os.Stderr)))
}

// run is the whole program except for the process itself, so that tests can call it.
func run(ctx context.Context, ints *interrupts, args []string, stdout, stderr io.Writer) exit.Code {
	args, err := wholeArgs(args)
	g := &globals{interrupts: ints, args: args, ui: terminal.New(stdout, stderr)}
	if err == nil {
		verb := ""
		if len(args) > 0 {
			verb = args[0]
		}
		root := newRootCommand(g, verb)
		root.SetArgs(args)
		err = exit.OrInterrupted(ctx, ints.during(ctx, root.ExecuteContext))
	}
	if err == nil {
		return exit.OK
	}
	if !g.running {
		err = exit.With(exit.Usage, err)
		if mounting.TellParent(args, err) {
			return exit.CodeOf(err)
		}
	}
	// If the flags are what is wrong, --json may not have been parsed.
	g.ui.JSON = g.ui.JSON || slices.Contains(args, "--json")
	return reportError(g.ui, err)
}

// maxArgsBytes bounds the arguments read from a descriptor. A kernel takes 6 MiB at most.
const maxArgsBytes = 8 << 20

// wholeArgs returns args or, if they name a descriptor, the arguments read from it.
func wholeArgs(args []string) ([]string, error) {
	if len(args) < 2 || strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	number, found := strings.CutPrefix(args[1], mounting.ArgsFlag)
	if !found {
		return args, nil
	}
	fd, err := strconv.Atoi(number)
	if err != nil || fd < 0 {
		return args, exit.Usagef("--args-fd (%s) must be the number of an open file", number)
	}
	f := os.NewFile(uintptr(fd), "args-fd")
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxArgsBytes+1))
	text := string(b)
	switch {
	case err != nil:
		return args, exit.Usagef("--args-fd (%d) can't be read: %w", fd, err)
	case len(b) > maxArgsBytes:
		return args, exit.Usagef("--args-fd (%d) has more than %d bytes: it must hold only the arguments", fd, maxArgsBytes)
	case text != "" && !strings.HasSuffix(text, "\x00"):
		return args, exit.Usagef("--args-fd (%d) has an argument that does not end with a zero byte: write them as printf '%%s\\0' does", fd)
	}
	whole := strings.Split(text, "\x00")
	return append(args[:1:1], whole[:len(whole)-1]...), nil
}

// changedMeanwhile is a command's message about a shard that changed while it ran.
const changedMeanwhile = "changed since it was indexed: run the command again, which indexes it again"

// reportError prints err once and returns the exit code.
func reportError(u *terminal.UI, err error) exit.Code {
	code := exit.CodeOf(err)
	// storage.ErrChanged advises to mount again, which is right for a mount that fails to read a
	// shard later. A command that has ended was not a mount, or failed before it mounted.
	text := strings.ReplaceAll(err.Error(), storage.ErrChanged.Error(), changedMeanwhile)
	if text != "" && code != exit.Pipe {
		u.Fail(text, struct {
			Error string    `json:"error"`
			Code  exit.Code `json:"exit_code"`
			Name  string    `json:"exit_name"`
		}{text, code, code.Name()})
	}
	return code
}

// endings are the signals that end a command. A process that does not handle one of them dies of it
// and leaves a dead mount: SIGHUP when a terminal or session goes away, SIGQUIT for Ctrl-\, the
// others from batch systems, limits and timers. SIGABRT is not handled, so that it prints the
// goroutines' stacks.
var endings = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGXCPU, syscall.SIGALRM}

// interrupts handles the signals that end a command. The first signal cancels the command's
// context, or ends the process if the command asked for that. The second ends the process, or
// cancels force if the command has taken it. The third always ends the process.
type interrupts struct {
	force   context.Context
	taken   atomic.Bool
	atOnce  atomic.Bool
	signals chan os.Signal
	hangup  atomic.Pointer[func()]
}

// endAtOnce makes the first signal end the process. It is for commands that have nothing to clean
// up and may be blocked in a write.
func (i *interrupts) endAtOnce() { i.atOnce.Store(true) }

// takeForce returns the context that the second signal cancels. A command that takes it has
// something to clean up even then.
func (i *interrupts) takeForce() context.Context {
	i.taken.Store(true)
	return i.force
}

// endTime is how long a command may take to end after the first signal, unless it has taken force.
// Its files are intact by then: they are renamed into place, and an index pass keeps a journal of
// what it has indexed.
const endTime = 900 * time.Millisecond

// during runs a command. It does not wait for a command that hangs after ctx has ended, in a
// request without an answer, in a search for credentials, or in a file system that is gone: the
// process ends then.
func (i *interrupts) during(ctx context.Context, command func(context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- command(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit := time.NewTimer(endTime)
	defer limit.Stop()
	select {
	case err := <-ended:
		return err
	case <-limit.C:
	}
	if i.taken.Load() {
		return <-ended
	}
	return ctx.Err()
}

// onHangup makes SIGHUP call f. It is for a daemon, which has no terminal that could go away.
func (i *interrupts) onHangup(f func()) {
	i.hangup.Store(&f)
	signal.Notify(i.signals, syscall.SIGHUP)
}

// wait returns when the next signal that ends the command arrives.
func (i *interrupts) wait() {
	for s := range i.signals {
		f := i.hangup.Load()
		if s != syscall.SIGHUP || f == nil {
			return
		}
		(*f)()
	}
}

func runSignalled(args []string, stdout, stderr io.Writer) exit.Code {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	force, cancelForce := context.WithCancel(context.Background())
	defer cancelForce()
	ints := &interrupts{force: force, signals: make(chan os.Signal, 3)}

	signal.Notify(ints.signals, endings...)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(ints.signals, syscall.SIGHUP)
	}
	defer signal.Stop(ints.signals)
	// If a file would exceed the size limit (ulimit -f), the write fails; the process goes on.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGXFSZ)
	go func() { // ends with the process
		ints.wait()
		cancel()
		if ints.atOnce.Load() {
			os.Exit(int(exit.Interrupted))
		}
		ints.wait()
		cancelForce()
		if ints.taken.Load() {
			ints.wait()
		}
		os.Exit(int(exit.Interrupted))
	}()
	return run(ctx, ints, args, stdout, stderr)
}
