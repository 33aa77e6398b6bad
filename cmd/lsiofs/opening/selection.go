package opening

import (
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/printable"
)

// Selection lists which files of a dataset were taken and which were left out, in a command's JSON.
type Selection struct {
	PassedOver int                `json:"files_passed_over"`
	Taken      []discover.Group   `json:"taken,omitempty"`    // by naming pattern, the first ones
	LeftOut    []discover.Verdict `json:"left_out,omitempty"` // the first ones
}

// SelectionOf returns which files of a dataset were taken and left out.
func SelectionOf(s *discover.Selection) Selection { return Selection{s.LeftOut, s.Taken, s.FirstLeft} }

// SelectionLines returns a line about the files that were taken, by naming pattern, and one about
// those left out.
func SelectionLines(c *catalog.Catalog) []string { return selectionLines(c.Selection(), emptyText(c)) }

// selectionLines implements SelectionLines; empty names shards without records.
func selectionLines(s *discover.Selection, empty string) []string {
	if s.Shards == 0 {
		return nil
	}
	lines := []string{"taken: " + printable.Line(s.TakenText()+empty)}
	if left := s.LeftOutText(); left != "" {
		lines = append(lines, "left out: "+printable.Line(left)+" (reasons: lsiofs inspect --files)")
	}
	return lines
}

// emptyText names shards without records, which may be meant to be empty or may have lost their
// records.
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

// TellSelection prints the lines and whatever else the user should know about the selection.
func TellSelection(u *terminal.UI, c *catalog.Catalog) { tellSelection(u, c.Selection(), emptyText(c)) }

// TellFound is TellSelection before an index exists.
func TellFound(u *terminal.UI, s *discover.Selection) { tellSelection(u, s, "") }

func tellSelection(u *terminal.UI, s *discover.Selection, empty string) {
	for _, line := range selectionLines(s, empty) {
		u.Notef("%s", line)
	}
	for _, note := range s.Notes {
		u.Warn(printable.Line(note))
	}
}
