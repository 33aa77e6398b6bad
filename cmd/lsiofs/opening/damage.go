package opening

import (
	"fmt"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

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
