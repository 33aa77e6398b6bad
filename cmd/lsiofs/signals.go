package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

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
