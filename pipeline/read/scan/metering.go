package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// submitReads submits reads whose Done calls Scanner.meter.Reading.End.
func (sc *Scanner) submitReads(reads []*storage.Read) {
	sc.meter.Reading.Begin(len(reads))
	sc.storage.Submit(reads)
}

// submitRaw is submitReads for what decoders read.
func (sc *Scanner) submitRaw(reads []*storage.Read) {
	sc.meter.Reading.Begin(len(reads))
	if dry := sc.config.Dry; dry != nil {
		dry.Raw.Submit(reads)
		return
	}
	sc.storage.Submit(reads)
}

// waitsFor returns the stage to charge for waiting on this load, and the decoder whose waits that
// is to be split by. It is called with mu held.
func (ld *load) waitsFor() (meter.Stage, *meter.WaitClock) {
	switch {
	case ld.via != nil:
		return meter.Decompress, ld.via
	case ld.stage.Load() == isQueued || ld.pending.Load() > 0:
		return meter.Storage, nil
	}
	return meter.Gather, nil
}

// Object names the shard of a record.
func (sc *Scanner) Object(record uint64) string { return pinned.ShardOf(sc.index, record) }
