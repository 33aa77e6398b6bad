package fetch

import (
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// takeCore waits for a processor to decode on; giveCore lets others have it.
func (f *Fetcher) takeCore() {
	f.cpu <- struct{}{}
	f.meter.Working[meter.Decompress].Begin(meter.Now())
}

func (f *Fetcher) giveCore() {
	f.meter.Working[meter.Decompress].End(meter.Now())
	<-f.cpu
}

// submitReads hands reads over whose Done calls Fetcher.meter.Reading.End.
func (f *Fetcher) submitReads(reads []*storage.Read) {
	f.meter.Reading.Begin(len(reads))
	f.storage.Submit(reads)
}

// Meter is what counts where the fetcher's time goes.
func (f *Fetcher) Meter() *meter.Meter { return f.meter }

// waitsFor says for which stage those wait who wait for the load, and by which
// decoder's waits that is to be split. It is called with mu held.
func (ld *load) waitsFor() (meter.Stage, *meter.Ledger) {
	switch {
	case ld.via != nil:
		return meter.Decompress, ld.via
	case ld.stage.Load() == isQueued || ld.pending.Load() > 0:
		return meter.Storage, nil
	}
	return meter.Gather, nil
}

// Object names the shard of a record.
func (f *Fetcher) Object(record uint64) string { return loan.ShardOf(f.index, record) }
