package pipeline

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

const (
	// maxEpochRecords bounds an epoch: to lay one out, which the size of any file of it needs, takes
	// sweepNanos of one core a record, 46 minutes for so many.
	maxEpochRecords = 1 << 36
	// longEpochRecords is from where on the user is told how long that takes.
	longEpochRecords = 1 << 31
	sweepNanos       = 40
)

// laysOutIn is about how long one core takes to lay out an epoch.
func laysOutIn(records uint64) time.Duration {
	return time.Duration(min(records, 1<<56) * sweepNanos).Round(time.Second)
}

// checkLength refuses an epoch that is too long to be laid out, before anything is computed that grows
// with its length. It warns of a long one.
func (g *generation) checkLength() error {
	if g.mixing != nil {
		return g.checkLengthOf(g.mixing.length, "give a shorter --mix-length, or more even weights")
	}
	n, flags := g.catalog.Records(), "larger records, fewer shards, or --sample 1/N make it shorter"
	if of := g.spec.Order.Sample.Or().Of; of > 1 {
		n /= of
	}
	return g.checkLengthOf(n, flags)
}

func (g *generation) checkLengthOf(n uint64, flags string) error {
	switch {
	case n > maxEpochRecords:
		return fmt.Errorf("an epoch has a length of %d (%s) records, and it would take %s of a core to lay it out: at most %d are read: %s",
			n, humanize.Comma(int64(min(n, 1<<62))), laysOutIn(n), uint64(maxEpochRecords), flags)
	case n > longEpochRecords:
		g.mount.log.Warn("an epoch is long: before it is laid out, the sizes of its files are not known, and who asks for them waits", "records", n, "seconds_of_a_core", laysOutIn(n).Seconds(), "help", flags)
	}
	return nil
}
