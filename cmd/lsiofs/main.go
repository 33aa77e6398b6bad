// Command lsiofs mounts a dataset as shuffled training streams.
//
// Each verb has one file (cmd_mount.go, …) with its flags, its help, and a call of the
// package below that does the work. flags*.go and values.go hold flags that several
// verbs share. The packages below know no flags. They write to a terminal.UI and return
// errors, which may carry an exit code (package exit). Only main prints errors and ends
// the process.
//
//	cmd_*.go ──► mounting · demo · bench · doctor · page · inspect · readplan
//	             verification · cat · top · tune · filtering
//	                 │
//	                 ▼
//	             opening · resuming · document · build
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
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func main() {
	os.Exit(int(runSignalled(os.Args[1:], os.Stdout, os.Stderr)))
}

// interrupts is what becomes of SIGINT and SIGTERM: the first cancels the
// command's context, or ends the process where the command wants that; the
// second ends the process, or cancels force for a command that has taken it; the
// third always ends the process.
type interrupts struct {
	force  context.Context
	taken  atomic.Bool
	atOnce atomic.Bool
}

// endAtOnce makes the first signal end the process: for a command that has
// nothing to put in order and may be blocked in a write.
func (i *interrupts) endAtOnce() { i.atOnce.Store(true) }

// takeForce gives the context that the second signal cancels. A command that
// takes it has something to put in order even then.
func (i *interrupts) takeForce() context.Context {
	i.taken.Store(true)
	return i.force
}

func runSignalled(args []string, stdout, stderr io.Writer) exit.Code {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	force, cancelForce := context.WithCancel(context.Background())
	defer cancelForce()
	ints := &interrupts{force: force}

	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() { // ends with the process
		<-signals
		cancel()
		if ints.atOnce.Load() {
			os.Exit(int(exit.Interrupted))
		}
		<-signals
		cancelForce()
		if ints.taken.Load() {
			<-signals
		}
		os.Exit(int(exit.Interrupted))
	}()
	return run(ctx, ints, args, stdout, stderr)
}

// run is the whole program but for the process: tests call it.
func run(ctx context.Context, ints *interrupts, args []string, stdout, stderr io.Writer) exit.Code {
	g := &globals{interrupts: ints, args: args, ui: terminal.New(stdout, stderr)}
	root := newRootCommand(g)
	root.SetArgs(args)
	err := exit.OrInterrupted(ctx, root.ExecuteContext(ctx))
	if err == nil {
		return exit.OK
	}
	if !g.running {
		err = exit.With(exit.Usage, err)
		if mounting.TellParent(args, err) {
			return exit.CodeOf(err)
		}
	}
	// Flags may not have been parsed when they are what is wrong.
	g.ui.JSON = g.ui.JSON || slices.Contains(args, "--json")
	return reportError(g.ui, err)
}

// changedMeanwhile is what a command says of a shard that changed while it ran.
const changedMeanwhile = "changed since it was indexed: run the command again, which indexes it anew"

// reportError prints err, once, and gives the code to exit with.
func reportError(u *terminal.UI, err error) exit.Code {
	code := exit.CodeOf(err)
	// A mount says to mount again, also of what it could not read later on. A command that has
	// ended was none, or did not get so far.
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
