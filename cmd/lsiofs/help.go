package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/manual"
)

// flagGroups are the headings under which the flags of commands that open a dataset are shown, the
// common ones first. Flags in no group come before all of them, as the command's own.
var flagGroups = []struct {
	name  string
	flags []string
}{
	{"Data", []string{"format", "columns", "split", "split-by", "split-seed", "sample", "sample-seed", "on-corrupt", "array", "record-bytes", "stride-bytes", "header-bytes", "remainder", "lc0-check", "as", "pack", "eos", "dtype", "cut", "max-record"}},
	{"Crops", []string{"crop", "stride", "step", "jitter", "select", "wrap", "edge", "crops", "stack", "scale", "offset", "missing"}},
	{"Growing", []string{"grow", "run", "window", "newest", "min-new", "settle", "poll", "hold", "snapshot"}},
	{"Order", []string{"seed", "epoch", "shuffle", "shuffle-size", "lanes", "chunk-bytes", "chunk-records", "groups"}},
	{"Workers", []string{"workers", "batch", "tail", "deal", "worker", "from"}},
	{"Reading", []string{"memory", "read", "index-dir", "spool-dir", "spool-max", "read-timeout", "direct", "io"}},
	{"Remote", []string{"region", "endpoint", "addressing", "anonymous", "requester-pays", "auth-file", "ca-file", "unversioned", "connections", "hedge", "lookahead"}},
	{"Cache", []string{"cache-dir", "cache-size", "cache-reserve", "cache-fill", "warm"}},
	{"Mount", []string{"resume", "daemon", "log-file", "allow-other", "readers", "restore", "fuse-io-uring", "while-pid", "rmdir"}},
}

const (
	helpColumns = 100
	// helpIndent is the column where descriptions begin: next to most flags, on a line of their own
	// below longer ones.
	helpIndent = 28
)

// writeHelp writes a command's description, its usage and the exit codes.
func writeHelp(w io.Writer, c *cobra.Command) error {
	about := strings.TrimRightFunc(cmp.Or(c.Long, c.Short), unicode.IsSpace)
	if _, err := io.WriteString(w, about+"\n\n"); err != nil {
		return err
	}
	if err := writeUsage(w, c); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+exit.Table())
	return err
}

// writeUsage writes a command's usage, which follows its description.
func writeUsage(w io.Writer, c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:")
	if c.Runnable() {
		b.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	if c.HasExample() {
		b.WriteString("\n\nExamples:\n" + c.Example)
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n\nCommands:")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if !c.HasParent() {
		b.WriteString("\n\nManual (lsiofs help TOPIC):")
		for _, p := range manual.Pages() {
			fmt.Fprintf(&b, "\n  %-*s %s", c.NamePadding(), p.Topic, p.Title)
		}
	}
	isHelp := func(f *pflag.Flag) bool { return f.Name == "help" }
	groups := groupFlags(c.LocalFlags(), isHelp)
	everywhere := append(flagLines(c.InheritedFlags(), nil), flagLines(c.LocalFlags(), isHelp)...)
	if !c.HasParent() { // the root's flags belong to all commands
		everywhere, groups = append(flagLines(c.LocalFlags(), func(f *pflag.Flag) bool { return !isHelp(f) }), everywhere...), nil
	}
	for _, g := range append(groups, helpGroup{"Flags of all commands", everywhere}) {
		b.WriteString("\n\n" + g.name + ":\n" + strings.Join(g.lines, "\n"))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nRun \"%s [command] --help\" for more about a command.", c.CommandPath())
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// helpGroup is a heading and the flags below it.
type helpGroup struct {
	name  string
	lines []string
}

// groupFlags returns the groups that have flags, leaving out flags that are shown elsewhere.
func groupFlags(all *pflag.FlagSet, elsewhere func(*pflag.Flag) bool) (groups []helpGroup) {
	grouped := map[string]bool{}
	for _, g := range flagGroups {
		for _, name := range g.flags {
			grouped[name] = true
		}
	}
	if own := flagLines(all, func(f *pflag.Flag) bool { return !grouped[f.Name] && !elsewhere(f) }); len(own) > 0 {
		groups = append(groups, helpGroup{"Flags", own})
	}
	for _, g := range flagGroups {
		var lines []string
		for _, name := range g.flags {
			lines = append(lines, flagLines(all, func(f *pflag.Flag) bool { return f.Name == name })...)
		}
		if len(lines) > 0 {
			groups = append(groups, helpGroup{g.name, lines})
		}
	}
	return groups
}

// flagLines describes the flags that chosen selects, or all if it is nil.
func flagLines(flags *pflag.FlagSet, chosen func(*pflag.Flag) bool) (lines []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && (chosen == nil || chosen(f)) {
			lines = append(lines, flagText(f))
		}
	})
	return lines
}

// flagText returns a flag with its argument, and its description with the default.
func flagText(f *pflag.Flag) string {
	takes, usage := pflag.UnquoteUsage(f)
	left := "      --" + f.Name
	if f.Shorthand != "" {
		left = "  -" + f.Shorthand + ", --" + f.Name
	}
	if takes != "" {
		left += " " + takes
	}
	if !slices.Contains([]string{"", "0", "0s", "false"}, f.DefValue) {
		usage += " (default " + f.DefValue + ")"
	}
	var b strings.Builder
	b.WriteString(left)
	column := utf8.RuneCountInString(left)
	if column+2 > helpIndent {
		column = helpColumns // the description begins on the next line
	} else {
		b.WriteString(strings.Repeat(" ", helpIndent-column))
		column = helpIndent
	}
	for i, word := range strings.Fields(usage) {
		n := utf8.RuneCountInString(word)
		switch {
		case column+1+n > helpColumns:
			b.WriteString("\n" + strings.Repeat(" ", helpIndent))
			column = helpIndent
		case i > 0:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

// newHelpCommand returns the command that shows help about commands and the manual's pages.
func newHelpCommand(g *globals) *cobra.Command {
	var topics []string
	for _, p := range manual.Pages() {
		topics = append(topics, p.Topic)
	}
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Show the help of a command, or a page of the manual",
		Long: `Shows the help of a command, or a page of the manual. The manual's topics are
` + strings.Join(topics, ", ") + `.`,
		Example:   "  lsiofs help mount\n  lsiofs help checkpoints",
		ValidArgs: topics,
		RunE: func(c *cobra.Command, args []string) error {
			root := c.Root()
			root.InitDefaultHelpFlag()
			if len(args) == 0 {
				return root.Help()
			}
			if page, ok := manual.Find(args[0]); ok && len(args) == 1 {
				_, err := io.WriteString(g.ui.Out, page.Text)
				return err
			}
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return exit.Usagef("there is no command and no page %q: the pages are %s; the commands are listed by lsiofs --help", strings.Join(args, " "), strings.Join(topics, ", "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
