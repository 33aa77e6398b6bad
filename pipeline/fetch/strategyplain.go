package fetch

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// choosePlain chooses where no shard is compressed: scan where each piece is
// read once, else gather, which reads each record once in any memory.
func (f *Fetcher) choosePlain(asked spec.Read) Choice {
	scan := func(reason string) Choice {
		return Choice{Strategy: spec.ReadScan, Reason: "no shard is compressed, and " + reason}
	}
	gather := func(reason string) Choice { return Choice{Strategy: spec.ReadGather, Reason: reason} }
	if asked == spec.ReadGather {
		return gather("asked for")
	}
	total, records := f.shardsInUse()
	waits := f.waitingBytes(total, records)
	switch {
	case total <= f.limits.cache/4*3:
		return scan("memory holds the dataset")
	case f.config.Order.Shuffle == spec.ShuffleNone:
		return scan("shards are read from front to back")
	case f.readsCostNothing():
		return gather("no shard is compressed, and nothing is saved by reading the records beside one")
	case waits <= f.scanBudget():
		return scan("memory holds what waits in the shuffle")
	}
	return gather(fmt.Sprintf("no shard is compressed, and about %s wait in the shuffle, which is more than memory holds well",
		humanize.IBytes(uint64(waits))))
}

// scanBudget is up to how many waiting bytes scan is better. In a part of the
// budget that is fuller, pieces are copied and dropped more often; where single
// reads cost much, that is still better than one a record.
func (f *Fetcher) scanBudget() int64 {
	switch f.config.Storage.Kind {
	case profile.KindDisk, profile.KindNetwork:
		return f.limits.cache / 5 * 4
	}
	return f.limits.cache / 2
}

// readsCostNothing says that many small reads cost no more than a large one: then
// no gap is worth reading across, and gather does with less memory.
func (f *Fetcher) readsCostNothing() bool {
	k := f.config.Storage.Kind
	return f.config.Storage.GapBytes == 0 && k != profile.KindDisk && k != profile.KindNetwork
}

// waitingBytes is about how much a scan keeps of records that have been read and
// wait for their turn: what the shuffle holds, for each place where the order
// is read, with what is lost between records that stay and such that have gone;
// and the pieces that they come with. The shards in use have total bytes and
// records.
func (f *Fetcher) waitingBytes(total int64, records uint64) int64 {
	o := f.config.Order
	if records == 0 || o.Shuffle == spec.ShuffleFull {
		return total
	}
	places := float64(max(f.config.Spool.Places, 1))
	waits := float64(o.SizeRecords)*float64(total)/float64(records)*1.5 + 2*float64(o.Lanes)*float64(f.config.PieceBytes)
	return int64(min(places*waits, float64(total)))
}
