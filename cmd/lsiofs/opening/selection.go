package opening

import (
	"fmt"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
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

// NothingSelected returns a warning about an epoch in which --split and --sample select no records.
// so is the consequence.
func NothingSelected(d *pipeline.Dataset, epoch uint64, so string) string {
	s := d.Spec()
	all := terminal.Plural(d.Catalog().Records(), "record")
	if s.Order.Sample != (spec.Subsample{}) {
		return fmt.Sprintf("--sample %s selects none of the dataset's %s in epoch %d, so %s: use a larger share", s.Order.Sample, all, epoch, so)
	}
	return fmt.Sprintf("--split %s --split-by %s selects none of the dataset's %s, so %s: use a larger part, or split by record", s.Order.Split.Part, s.Order.Split.By, all, so)
}

// DamageLines describes what --on-corrupt skip left out, for at most limit shards.
func DamageLines(damaged []catalog.Damage, limit int) []string {
	var lines []string
	for i, d := range damaged {
		if i == limit {
			lines = append(lines, fmt.Sprintf("… and %d more damaged shards (lsiofs inspect lists them all)", len(damaged)-limit))
			break
		}
		lines = append(lines, "left out of "+damageText(d))
	}
	return lines
}

// damageText describes a shard's first damage and counts the others.
func damageText(d catalog.Damage) string {
	text := fmt.Sprintf("%s: %v", d.Path, d.Errors[0])
	if n := d.Count(); n > 1 {
		text += fmt.Sprintf(", and %s more", terminal.Count(n-1))
	}
	return text
}

// ReasonLines returns a line for each reason for which something was left out more than once.
func ReasonLines(list []format.Reason) []string {
	var lines []string
	for _, r := range list {
		if r.Count > 1 {
			lines = append(lines, fmt.Sprintf("left out %s times: %s", terminal.Count(r.Count), r.Text))
		}
	}
	return lines
}

// DamageList returns a line for each damaged shard.
func DamageList(damaged []catalog.Damage) []string {
	list := []string{}
	for _, d := range damaged {
		list = append(list, damageText(d))
	}
	return list
}
