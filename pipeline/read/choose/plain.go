package choose

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// choosePlain chooses if no shard is compressed: scan if it reads each piece once, else gather,
// which reads each record once with any memory.
func (s *Sizes) choosePlain(asked spec.Read) Choice {
	scan := func(reason string) Choice {
		return Choice{Strategy: spec.ReadScan, Reason: "no shard is compressed, and " + reason}
	}
	gather := func(reason string) Choice { return Choice{Strategy: spec.ReadGather, Reason: reason} }
	if asked == spec.ReadGather {
		c := gather("asked for")
		c.Chunks = s.keepsOpen()
		return c
	}
	if s.ByRequests() {
		return s.chooseRequests()
	}
	waits := s.waiting()
	switch {
	case s.Fits():
		return scan("the dataset fits in memory")
	case s.Order.Shuffle == spec.ShuffleNone:
		return scan("shards are read from front to back")
	case s.readsCostNothing():
		return gather("no shard is compressed, and reading neighbouring records with each one would save nothing")
	case waits <= s.scanBudget():
		return scan("the shuffle's waiting records fit in memory")
	}
	return gather(fmt.Sprintf("no shard is compressed, and about %s of records wait in the shuffle, too much for memory",
		humanize.IBytes(uint64(waits))))
}

// scanBudget returns up to how many waiting bytes scan is better. The fuller the budget, the more
// often pieces are copied and dropped; if single reads cost much, that is still better than one
// read per record.
func (s *Sizes) scanBudget() int64 {
	switch s.Storage.Kind {
	case profile.KindDisk, profile.KindNetwork:
		return s.Limits.CacheBytes / 5 * 4
	}
	return s.Limits.CacheBytes / 2
}

// readsCostNothing reports whether many small reads cost no more than a large one: then no gap is
// worth reading across, and gather needs less memory.
func (s *Sizes) readsCostNothing() bool {
	switch s.Storage.Kind {
	case profile.KindDisk, profile.KindNetwork:
		return false
	}
	return s.Storage.GapBytes == 0
}
