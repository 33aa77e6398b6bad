package pipeline

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// maxEpochRecords bounds an epoch. Laying one out, which is needed for the size of any of its
	// files, takes sweepNanos of one core for each record: 46 minutes for this many.
	maxEpochRecords = 1 << 36
	// longEpochRecords is the length from which on the user is warned about that time.
	longEpochRecords = 1 << 31
	sweepNanos       = 40
)

// laysOutIn estimates how long one core takes to lay out an epoch.
func laysOutIn(records uint64) time.Duration {
	return time.Duration(min(records, 1<<56) * sweepNanos).Round(time.Second)
}

// maxSelected bounds the records that a split or a sample chooses from: each takes a bit.
const maxSelected = maxEpochRecords << 2

// checkLength returns an error for an epoch that is too long to be laid out, before anything is
// computed that grows with its length. If a split or sample selects records, checkSelected decides.
func (g *generation) checkLength() error {
	switch {
	case g.mixing != nil:
		return g.checkLengthOf(g.mixing.length, "give a shorter --mix-length, or more even weights")
	case g.selects():
		return checkWhole(g.catalog.Records(), g.fewer()+" make it smaller")
	}
	return g.checkLengthOf(g.catalog.Records(), g.fewer()+selecting)
}

// checkSelected is checkLength for the selected records.
func (g *generation) checkSelected() error {
	if g.mixing != nil || !g.selects() {
		return nil // already checked
	}
	return g.checkLengthOf(g.distinct(g.selection), g.fewer()+selecting)
}

// selects reports whether a split or a sample selects some of the records.
func (g *generation) selects() bool {
	o := &g.spec.Order
	return o.Split.Or() != (spec.Split{}) || o.Sample.Or().Of > 1
}

// selecting lists what helps, besides fewer, if an epoch is too long.
const selecting = ", a --split, or --sample 1/N make it shorter"

// fewer names what reduces the number of records of a dataset.
func (g *generation) fewer() string {
	switch {
	case g.spec.Format.Name == "zarr":
		return "a larger --crop or --stride, a --select"
	case g.spec.Format.Name == "fixed":
		return "a larger --record-bytes or --stride-bytes, fewer shards"
	}
	return "larger records, fewer shards"
}

// checkWhole returns an error for a dataset that is too large to select from.
func checkWhole(n uint64, flags string) error {
	if n <= maxSelected {
		return nil
	}
	return fmt.Errorf("the dataset has %s records, and a --split or --sample chooses from %d at most: %s", humanize.Comma(int64(min(n, 1<<62))), uint64(maxSelected), flags)
}

func (g *generation) checkLengthOf(n uint64, flags string) error {
	most := cmp.Or(g.mount.options.maxRecords, maxEpochRecords)
	switch {
	case n > most:
		return fmt.Errorf("an epoch has a length of %d (%s) records, and it would take %s of a core to lay it out: at most %d are read: %s",
			n, humanize.Comma(int64(min(n, 1<<62))), laysOutIn(n), most, flags)
	case n > longEpochRecords:
		g.mount.log.Warn("an epoch is long: before it is laid out, the sizes of its files are not known, and programs that ask for them wait", "records", n, "seconds_of_a_core", laysOutIn(n).Seconds(), "help", flags)
	}
	return nil
}
