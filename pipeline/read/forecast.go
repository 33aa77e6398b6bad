package read

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
)

// Forecast is what a reader's next records take where they are scanned, or spooled.
type Forecast = scan.Forecast

// Forecast is scan.ForecastReads for this fetcher's dataset, memory and storage,
// whatever its strategy is.
func (f *Fetcher) Forecast(ctx context.Context, seq Sequence, n uint64, how Choice, read func(sizeBytes int64)) (Forecast, error) {
	return f.ForecastPhase(ctx, seq, f.config.Part, n, how, read)
}

// ForecastPhase is Forecast for records of another phase than Config.Part.
func (f *Fetcher) ForecastPhase(ctx context.Context, seq Sequence, part Part, n uint64, how Choice, read func(sizeBytes int64)) (Forecast, error) {
	c := f.scanning
	c.Places = c.Places.Of(part)
	return scan.ForecastReads(ctx, c, seq, n, how, read)
}

// ForecastGather is gather.ForecastReads for this fetcher's dataset, memory and
// storage, whatever its strategy is.
func (f *Fetcher) ForecastGather(ctx context.Context, seq Sequence, n uint64, read func(sizeBytes int64)) (gather.Forecast, error) {
	return gather.ForecastReads(ctx, f.gatherConfig(budget.NewBlocks(f.survey.Limits.CacheBytes)), seq, n, read)
}
