package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/build"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
)

// commands returns c and all commands below it.
func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

func newTestRoot() *cobra.Command {
	return newRootCommand(&globals{interrupts: &interrupts{}, ui: terminal.New(&bytes.Buffer{}, &bytes.Buffer{})}, "")
}

func TestOnlyNamedVerbIsCreated(t *testing.T) {
	for name := range verbs {
		root := newRootCommand(&globals{interrupts: &interrupts{}, ui: terminal.New(&bytes.Buffer{}, &bytes.Buffer{})}, name)
		var made []string
		for _, c := range root.Commands() {
			if c.Name() != "help" && c.Name() != "completion" {
				made = append(made, c.Name())
			}
		}
		require.Equal(t, []string{name}, made)
	}
}

func TestHelpTexts(t *testing.T) {
	for _, args := range [][]string{{}, {"mount"}, {"umount"}, {"index"}, {"inspect"}, {"verify"}, {"cat"}, {"plan"}, {"filter"}, {"next"}, {"snapshots"}, {"tune"}, {"checkpoint"},
		{"checkpoint", "show"}, {"checkpoint", "save"}, {"checkpoint", "restore"}, {"checkpoint", "merge"}, {"cache"},
		{"cache", "show"}, {"cache", "verify"}, {"cache", "clean"}, {"cache", "warm"}, {"bench"}, {"top"}, {"doctor"}, {"demo"}, {"version"}} {
		name := "help" + strings.Join(append([]string{""}, args...), "-") + ".txt"
		t.Run(name, func(t *testing.T) {
			r := ok(t, append(args, "--help")...)
			require.Empty(t, r.stderr)
			goldentest.Equal(t, name, r.stdout)
		})
	}
}

func TestEveryCommandHasExampleAndExitCodes(t *testing.T) {
	for _, c := range commands(newTestRoot()) {
		t.Run(c.CommandPath(), func(t *testing.T) {
			require.NotEmpty(t, c.Example)
			require.NotEmpty(t, c.Short)
			args := strings.Fields(c.CommandPath())[1:]
			require.Contains(t, ok(t, append(args, "--help")...).stdout, exit.Table())
		})
	}
}

func TestCommandsThatOpenDatasetShareFlags(t *testing.T) {
	root := newTestRoot()
	mount, _, err := root.Find([]string{"mount"})
	require.NoError(t, err)
	for name, own := range map[string][]string{
		"cat":     {"worker", "from", "ids", "offsets", "origins", "resume", "follow", "progress-file"},
		"plan":    {"worker", "from", "records", "resume"},
		"bench":   {"rounds", "seconds", "check", "make"},
		"inspect": {"html", "files"}, "verify": {"order"}, "index": {"rebuild", "part"},
	} {
		c, _, err := root.Find([]string{name})
		require.NoError(t, err)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(own, f.Name) {
				return
			}
			same := mount.Flags().Lookup(f.Name)
			require.NotNil(t, same, "%s --%s", name, f.Name)
			require.Equal(t, same.DefValue, f.DefValue)
			require.Equal(t, same.Usage, f.Usage)
		})
		require.NotNil(t, c.Flags().Lookup("shuffle-size"))
	}
}

func TestVersion(t *testing.T) {
	var b build.Info
	require.NoError(t, json.Unmarshal([]byte(ok(t, "version", "--json").stdout), &b))
	require.Equal(t, runtime.Version(), b.Go)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, b.Platform)
	require.NotEmpty(t, b.Version)
	require.Contains(t, ok(t, "version").stdout, "lsiofs "+b.Version+"\n")

	var out bytes.Buffer
	require.NoError(t, printVersion(build.Info{Version: "v1.2.3", Commit: "abc", Modified: true, Go: "go1.26", Platform: "linux/arm64"}, terminal.New(&out, &out)))
	require.Equal(t, "lsiofs v1.2.3\ncommit   abc (modified)\ngo       go1.26\nplatform linux/arm64\n", out.String())
}

func TestCompletionScriptsAreGenerated(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, ok(t, "completion", shell).stdout, "lsiofs")
	}
	require.Contains(t, ok(t, "__complete", "mount", "--shuffle", "").stdout, "reservoir\n")
}
