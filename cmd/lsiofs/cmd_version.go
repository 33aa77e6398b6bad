package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version may be set when linking: -ldflags "-X main.version=v1.2.3".
var version = ""

// build says which program this is.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the tree had changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionOf() build {
	b := build{Version: version, Commit: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	return b
}

func newVersionCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go and platform",
		Example: `  lsiofs version
  lsiofs version --json`,
		Args: exactArgs(),
		RunE: func(*cobra.Command, []string) error { return printVersion(versionOf(), g.ui) },
	}
}

func printVersion(b build, u *ui) error {
	if u.json {
		return u.emit(b)
	}
	modified := ""
	if b.Modified {
		modified = " (modified)"
	}
	_, err := fmt.Fprintf(u.out, "lsiofs %s\ncommit   %s%s\ngo       %s\nplatform %s\n", b.Version, b.Commit, modified, b.Go, b.Platform)
	return err
}
