package fetch

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/fetch/gather"
)

// startGatherer has records gathered, in memory of the fetcher's budget.
func (f *Fetcher) startGatherer() (err error) {
	f.gatherMemory = budget.NewBlocks(f.limits.CacheBytes)
	f.gatherer, err = gather.New(f.gatherConfig(f.gatherMemory))
	return err
}

func (f *Fetcher) gatherConfig(memory *budget.Blocks) gather.Config {
	return gather.Config{
		Index: f.index, Storage: f.storage, Memory: memory, Plan: PlanConfig(f.config.Storage), Ahead: f.config.Storage.Ahead,
		ReadTimeout: f.config.ReadTimeout, Verifier: f.verifier, Meter: f.meter, Note: f.note,
	}
}

// closeGatherer waits for the gatherer's reads and frees its memory.
func (f *Fetcher) closeGatherer() error {
	if f.gatherer == nil {
		return nil
	}
	f.gatherer.Close()
	return f.gatherMemory.Close()
}

// ForecastGather is gather.ForecastReads for this fetcher's dataset, memory and
// storage, whatever its strategy is.
func (f *Fetcher) ForecastGather(ctx context.Context, seq Sequence, n uint64, read func(sizeBytes int64)) (gather.Forecast, error) {
	return gather.ForecastReads(ctx, f.gatherConfig(budget.NewBlocks(f.limits.CacheBytes)), seq, n, read)
}

// addGathered adds what a gatherer counts.
func (s *Stats) addGathered(g gather.Stats) {
	s.HeldBytes += g.HeldBytes
	s.BytesRead += g.BytesRead
	s.ReadsCancelled += g.ReadsCancelled
	s.BytesCancelled += g.BytesCancelled
	s.RecordsOut += g.RecordsOut
	s.BytesOut += g.BytesOut
	s.Hits += g.Hits
	s.Waits += g.Waits
	s.WaitNanos += g.WaitNanos
	s.Gather = &GatherStats{Reads: g.Reads, ReadsInFlight: g.ReadsInFlight, DroppedBytes: g.DroppedBytes}
}
