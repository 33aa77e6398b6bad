// Command lsiofs mounts a dataset as shuffled training streams.
//
// Each verb has one file (cmd_mount.go, …) with its flags, its help text, and a call of the package
// below that does the work. flags*.go and values.go hold flags that several verbs share. The
// packages below do not know about flags. They write to a terminal.UI and return errors, which may
// carry an exit code (package exit). Only main prints errors and ends the process.
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
	"slices"
	"strings"

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
	args, err := mounting.WholeArgs(args)
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
