package inspect

import (
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// PrintFiles lists files, whether each is a shard, and why.
func PrintFiles(files []discover.Verdict, u *terminal.UI) error {
	if err := u.Printf("\n%-9s %-60s %s\n", "", "file", "why"); err != nil {
		return err
	}
	for _, f := range files {
		what := "left out"
		if f.Shard {
			what = "shard"
		}
		if err := u.Printf("%-9s %-60s %s\n", what, printable.Line(f.Path), f.Reason); err != nil {
			return err
		}
	}
	return nil
}
