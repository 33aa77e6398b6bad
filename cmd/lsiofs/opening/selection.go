package opening

import (
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// Selection is what of a dataset was taken and left out, in the JSON of a command.
type Selection struct {
	PassedOver int                `json:"files_passed_over"`
	Taken      []discover.Group   `json:"taken,omitempty"`    // by naming, the first ones
	LeftOut    []discover.Verdict `json:"left_out,omitempty"` // the first ones
}

// SelectionOf returns what was taken and left out of a dataset.
func SelectionOf(s *discover.Selection) Selection { return Selection{s.LeftOut, s.Taken, s.FirstLeft} }

// SelectionLines returns a line of what of a dataset was taken, by naming, and one of what was left
// out.
func SelectionLines(c *catalog.Catalog) []string { return selectionLines(c.Selection(), emptyText(c)) }

// selectionLines are SelectionLines; empty names shards without records.
func selectionLines(s *discover.Selection, empty string) []string {
	if s.Shards == 0 {
		return nil
	}
	lines := []string{"taken: " + printable.Line(s.TakenText()+empty)}
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

// TellSelection prints the lines, and what else a user should know of the choice.
func TellSelection(u *terminal.UI, c *catalog.Catalog) { tellSelection(u, c.Selection(), emptyText(c)) }

// TellFound is TellSelection before there is an index.
func TellFound(u *terminal.UI, s *discover.Selection) { tellSelection(u, s, "") }

func tellSelection(u *terminal.UI, s *discover.Selection, empty string) {
	for _, line := range selectionLines(s, empty) {
		u.Notef("%s", line)
	}
	for _, note := range s.Notes {
		u.Warn(printable.Line(note))
	}
}
