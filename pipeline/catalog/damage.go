package catalog

import (
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Damage is a shard of which something was left out (--on-corrupt skip).
type Damage struct {
	Path string
	// Errors are the first that were found, at least one, in file order.
	Errors []*format.CorruptError
	// Reasons counts the damages by reason. A shard that is not made of parts has one reason, with
	// count 1.
	Reasons []format.Reason
}

// Count returns the number of damages.
func (d *Damage) Count() (n uint64) {
	for _, r := range d.Reasons {
		n += r.Count
	}
	return n
}

// DamageReasons counts what was left out of all shards, by reason.
func (c *Catalog) DamageReasons() (list []format.Reason) {
	for i := range c.damaged {
		for _, r := range c.damaged[i].Reasons {
			list = format.CountReason(list, r.Text, r.Count)
		}
	}
	return list
}

// setDamaged reads from the index what was left out.
func (c *Catalog) setDamaged() {
	for n := range c.image.Shards() {
		if l := c.image.Blob(n).Losses(); len(l.First) > 0 {
			c.damaged = append(c.damaged, Damage{Path: c.image.Object(n).Path, Errors: l.First, Reasons: l.Reasons})
		}
	}
}

// logDamage logs a few shards; Catalog.Damaged has them all.
func logDamage(log *slog.Logger, damaged []Damage) {
	const most = 10
	for i, d := range damaged {
		if i == most {
			log.Warn("damaged records are left out of further shards", "shards", len(damaged)-most)
			return
		}
		log.Warn("damaged records are left out", "shard", d.Path, "damages", d.Count(), "reason", d.Errors[0].Error())
	}
}
