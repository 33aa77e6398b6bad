package opening

import (
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// SelectionLines say what of a dataset was taken, by naming, and what was left out.
func SelectionLines(c *catalog.Catalog) []string {
	s := c.Selection()
	if s.Shards == 0 {
		return nil
	}
	lines := []string{"taken: " + printable.Line(s.TakenText()+emptyText(c))}
	if left := s.LeftOutText(); left != "" {
		lines = append(lines, "left out: "+printable.Line(left)+" (lsiofs inspect --files says why)")
	}
	return lines
}

// emptyText names shards without records: they may be so, or have lost theirs.
func emptyText(c *catalog.Catalog) string {
	n, first := 0, ""
	for i := range c.Shards() {
		if s := c.Shard(i); s.Records == 0 {
			if n++; n == 1 {
				first = s.Object.Path
			}
		}
	}
	if n == 0 {
		return ""
	}
	return " (" + terminal.Count(uint64(n)) + " without records, such as " + first + ")"
}

// TellSelection tells it, and what else a user should know of the choice.
func TellSelection(u *terminal.UI, c *catalog.Catalog) {
	for _, line := range SelectionLines(c) {
		u.Notef("%s", line)
	}
	for _, note := range c.Selection().Notes {
		u.Warn(printable.Line(note))
	}
}
