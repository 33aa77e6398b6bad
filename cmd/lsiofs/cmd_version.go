package main

import (
	"fmt"
	"runtime/debug"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// version and commit may be set when linking, as .ci/release does, because what Go itself writes
// into a program depends on how the tree was checked out.
var version, commit = "", ""

// versionOf returns the version information of this program.
func versionOf() build.Info { return build.Of(version, commit) }

func newVersionCommand(g *globals) *cobra.Command {
	deps := false
	c := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go version and platform, and the linked modules",
		Example: `  lsiofs version
  lsiofs version --deps
  lsiofs version --deps --json | jq .dependencies`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			b := versionOf()
			if info, ok := debug.ReadBuildInfo(); ok && deps {
				b.Dependencies = build.Dependencies(info)
			}
			return printVersion(b, g.ui)
		},
	}
	c.Flags().BoolVar(&deps, "deps", false, "list the linked modules with their versions and licences")
	return c
}

func printVersion(b build.Info, u *terminal.UI) error {
	if u.JSON {
		return u.Emit(b)
	}
	modified := ""
	if b.Modified {
		modified = " (modified)"
	}
	err := u.Printf("lsiofs %s\ncommit   %s%s\ngo       %s\nplatform %s\n", b.Version, b.Commit, modified, b.Go, b.Platform)
	if err != nil || len(b.Dependencies) == 0 {
		return err
	}
	w := tabwriter.NewWriter(u.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmodule\tversion\tlicence")
	for _, d := range b.Dependencies {
		fmt.Fprintf(w, "%s\t%s\t%s\n", d.Module, d.Version, d.Licence)
	}
	return w.Flush()
}
