package main

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// globals is the state that all commands share.
type globals struct {
	*interrupts
	ui        *terminal.UI
	args      []string // the command line, without the program
	logLevel  slog.Level
	logFormat terminal.LogFormat
	// running is true once a command's own code runs. Earlier errors concern the command line.
	running bool
}

func (g *globals) log() *slog.Logger { return g.ui.Logger(g.logLevel, g.logFormat) }

// verbs are the constructors of all commands below the root, by name.
var verbs = map[string]func(*globals) *cobra.Command{
	"mount": newMountCommand, "umount": newUmountCommand, "index": newIndexCommand, "inspect": newInspectCommand,
	"verify": newVerifyCommand, "cat": newCatCommand, "plan": newPlanCommand, "filter": newFilterCommand, "next": newNextCommand,
	"snapshots": newSnapshotsCommand, "tune": newTuneCommand, "top": newTopCommand, "bench": newBenchCommand,
	bench.PartCommand: newBenchPartCommand, "checkpoint": newCheckpointCommand, "cache": newCacheCommand, "doctor": newDoctorCommand,
	"demo": newDemoCommand, "version": newVersionCommand,
}

// newRootCommand returns the root command. If verb is the name of a command, only that one is added
// to it. Otherwise all are, because help and completion list them.
func newRootCommand(g *globals, verb string) *cobra.Command {
	root := &cobra.Command{
		Use:   "lsiofs",
		Short: "Mount a dataset: every worker's shuffled epoch is a file",
		Long: `lsiofs mounts a dataset as shuffled training streams: one file per worker, of exactly
known size, that any program can read. A dataset consists of shards (tar, JSON lines,
TFRecord, npy, fixed-size records, games of Leela Chess Zero, all also compressed with
gzip, zstd or lz4; Parquet), of Zarr arrays, or of folders of single files. A
checkpoint is a small JSON file that works with any number of workers.`,
		Example: `  lsiofs demo
  lsiofs mount /data/train /mnt/train --workers 4 --seed 42
  lsiofs cat /data/train --worker 0/4 | tar -t | head`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		RunE:              runParent,
		Args:              cobra.ArbitraryArgs,
		PersistentPreRunE: func(c *cobra.Command, args []string) error {
			g.running = true
			return awaitPaths(c, args, g.ui)
		},
	}
	// The default would add a line about --help only to errors from Find.
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit.Usagef("%s (see %s --help)", flagProblem(c, err), c.CommandPath())
	})
	root.PersistentFlags().BoolVar(&g.ui.JSON, "json", false, "write results, warnings and errors as JSON, one object per line")
	g.logLevel = slog.LevelWarn
	root.PersistentFlags().TextVar(&g.logLevel, "log-level", slog.LevelWarn, "write log messages of this `level` and above to stderr: debug, info, warn, error")
	root.PersistentFlags().Var(&g.logFormat, "log-format", "format of log lines (default text, or json with --json)")
	formats := cobra.FixedCompletions([]string{string(terminal.LogText), string(terminal.LogJSON)}, cobra.ShellCompDirectiveNoFileComp)
	if err := root.RegisterFlagCompletionFunc("log-format", formats); err != nil {
		panic(err) // it has just been defined
	}
	root.SetOut(g.ui.Out) // InitDefaultCompletionCmd stores this writer
	root.SetErr(g.ui.Err)
	if alone, ok := verbs[verb]; ok {
		root.AddCommand(alone(g))
	} else {
		for _, name := range slices.Sorted(maps.Keys(verbs)) {
			root.AddCommand(verbs[name](g))
		}
		root.SetHelpCommand(newHelpCommand(g))
		root.InitDefaultHelpCmd()
		root.InitDefaultCompletionCmd("completion")
		describeCobrasOwn(root)
	}
	root.SetUsageFunc(func(c *cobra.Command) error { return writeUsage(c.OutOrStdout(), c) })
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		if err := writeHelp(c.OutOrStdout(), c); err != nil {
			c.PrintErrln(err)
		}
	})
	return root
}

// describeCobrasOwn adds examples to cobra's own commands, as all others have them.
func describeCobrasOwn(root *cobra.Command) {
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // it has just been added
	}
	c.Args, c.RunE = cobra.ArbitraryArgs, runParent
	c.Example = "  source <(lsiofs completion bash)"
	for shell, example := range map[string]string{
		"bash": "source <(lsiofs completion bash)", "zsh": "source <(lsiofs completion zsh)",
		"fish": "lsiofs completion fish | source", "powershell": "lsiofs completion powershell | Out-String | Invoke-Expression",
	} {
		for _, sub := range c.Commands() {
			if sub.Name() == shell {
				sub.Example = "  " + example
			}
		}
	}
}

// runParent is for commands that only have subcommands: it shows help, or refuses an unknown name.
func runParent(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	c.SuggestionsMinimumDistance = nearBy(args[0])
	if s := c.SuggestionsFor(args[0]); len(s) > 0 {
		hint = ": did you mean " + strings.Join(s, " or ") + "?"
	}
	return exit.Usagef("unknown command %q for %q%s (see %s --help)", remote.CleanText(args[0]), c.CommandPath(), hint, c.CommandPath())
}

// awaitPaths waits until the file systems of the paths that a command reads answer, and shows which
// one it is waiting for. Otherwise the first access to a path of a file system that does not answer
// would hang without a message. Commands about mounts do this themselves.
func awaitPaths(c *cobra.Command, args []string, u *terminal.UI) error {
	if !slices.Contains([]string{"mount", "cat", "index", "verify", "plan", "inspect", "filter", "tune", "bench", "snapshots", "warm"}, c.Name()) {
		return nil
	}
	paths := slices.Clone(args)
	if n := c.ArgsLenAtDash(); n >= 0 && c.Name() == "filter" {
		paths = paths[:n] // the command to run comes after the dash
	}
	if c.Name() == "mount" && len(paths) > 0 {
		paths = paths[:len(paths)-1] // mount bounds its own wait for the mount point
	}
	if f := c.Flags().Lookup("resume"); f != nil && f.Changed {
		paths = append(paths, f.Value.String())
	}
	for _, path := range paths {
		if strings.Contains(path, "://") {
			continue
		}
		err := filesystem.AwaitAnswer(c.Context(), path, awaitFirst, awaitAgain, func(path string, waited time.Duration) error {
			u.Notef("waiting: %v", fs.Silence(path, waited.Round(time.Second)))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// When awaitPaths first reports what it is waiting for, and how often after that.
const (
	awaitFirst = 3 * time.Second
	awaitAgain = 30 * time.Second
)

// exactArgs is like cobra.ExactArgs, but returns a usage error that names the arguments.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return wrongArgs(c, describeArgs(names), args, len(args) > len(names) && slices.Contains(names, "DATASET"))
		}
		return nil
	}
}

// wrongArgs returns the error of a command that was given wrong arguments. A shell expands an
// unquoted pattern, so several names in place of one dataset are often an expanded pattern.
func wrongArgs(c *cobra.Command, takes string, args []string, pattern bool) error {
	quote := ""
	if pattern {
		quote = "; quote patterns, as in 'shard-*.tar', so that the shell does not expand them"
	}
	return exit.Usagef("%s takes %s, but there %s%s (see %s --help)", c.CommandPath(), takes, argCount(len(args)), quote, c.CommandPath())
}

func argCount(n int) string {
	switch n {
	case 0:
		return "are none"
	case 1:
		return "is one argument"
	}
	return fmt.Sprintf("are %d arguments", n)
}

func describeArgs(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " and ")
}
