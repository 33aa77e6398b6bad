package fs

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/explain"
)

// renderMetrics is the file metrics: the mount's counters, for Prometheus.
func (t *tree) renderMetrics(context.Context) ([]byte, error) { return metricsText(t.sample()), nil }

// sample is all that metrics are computed from, taken at one time, so that nothing is counted
// twice.
type sample struct {
	statusReport
	view  *view
	times explain.Snapshot
}

func metricsText(s *sample) []byte {
	families := familiesOf(nil, mountMetrics(), s)
	families = familiesOf(families, stageMetrics(), &s.times)
	families = familiesOf(families, remoteMetrics(), s.Pipeline.Remote)
	families = familiesOf(families, cacheMetrics(), s.Pipeline.Cache)
	families = familiesOf(families, growingMetrics(), s.Pipeline.Growing)
	families = familiesOf(families, cubeMetrics(), s.Pipeline.Cubes)
	families = familiesOf(families, sourceMetrics(), &s.Sources)
	return exposition(families)
}

// mountMetrics are the metrics that every mount has.
func mountMetrics() []metric[sample] {
	metrics := []metric[sample]{{
		gaugeKind, "lsiofs_engine_info", "The io engine that reads.", "engine",
		func(s *sample, out func(float64, string)) { out(1, s.Pipeline.Engine.Engine) },
	}}
	counter := func(name, help string, value func(s *sample) float64) {
		metrics = append(metrics, metricOf(counterKind, name, help, value))
	}
	gauge := func(name, help string, value func(s *sample) float64) {
		metrics = append(metrics, metricOf(gaugeKind, name, help, value))
	}
	counter("lsiofs_sent_bytes_total", "Bytes of streams that clients were sent.", func(s *sample) float64 { return float64(s.Traffic.SentBytes) })
	counter("lsiofs_sent_reads_total", "Reads of streams that were answered with bytes.", func(s *sample) float64 { return float64(s.Traffic.Reads) })
	counter("lsiofs_reader_seconds_total", "Time of readers, each counted for itself from its first read to a minute after its last.", func(s *sample) float64 { return float64(s.times.Recent) / 1e9 })
	counter("lsiofs_opened_total", "Openings of streams.", func(s *sample) float64 { return float64(s.Traffic.Opened) })
	gauge("lsiofs_open_handles", "Streams that are open.", func(s *sample) float64 { return float64(s.Traffic.OpenHandles) })
	counter("lsiofs_failed_requests_total", "Requests that clients got EIO for.", func(s *sample) float64 { return float64(s.Errors) })
	counter("lsiofs_checkpoint_refusals_total", "Checkpoints that were refused.", func(s *sample) float64 { return float64(s.Refusals) })
	counter("lsiofs_checkpoint_restores_total", "Checkpoints that were restored.", func(s *sample) float64 { return float64(s.view.number - 1) })
	gauge("lsiofs_epoch", "The epoch of the worker files.", func(s *sample) float64 { return float64(s.view.position.Epoch) })
	gauge("lsiofs_records", "Records of the dataset.", func(s *sample) float64 { return float64(s.Records) })
	gauge("lsiofs_shards", "Files that are shards of the dataset.", func(s *sample) float64 { return float64(s.Pipeline.Shards) })
	gauge("lsiofs_files_left_out", "Files below the dataset that are no shards.", func(s *sample) float64 { return float64(s.Pipeline.FilesLeftOut) })

	counter("lsiofs_engine_reads_total", "Reads that the io engine has completed.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Reads) })
	counter("lsiofs_engine_read_bytes_total", "Bytes that the io engine has read.", func(s *sample) float64 { return float64(s.Pipeline.Engine.ReadBytes) })
	counter("lsiofs_engine_cached_reads_total", "Reads that the page cache answered at once.", func(s *sample) float64 { return float64(s.Pipeline.Engine.CachedReads) })
	counter("lsiofs_engine_direct_reads_total", "Reads that bypassed the page cache.", func(s *sample) float64 { return float64(s.Pipeline.Engine.DirectReads) })
	counter("lsiofs_engine_errors_total", "Reads of the io engine that failed.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Errors) })
	counter("lsiofs_engine_unwanted_total", "Reads that were called off while they waited for the io engine.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Unwanted) })
	counter("lsiofs_engine_remote_reads_total", "Reads of files on FUSE or a network file system.", func(s *sample) float64 { return float64(s.Pipeline.Engine.RemoteReads) })
	gauge("lsiofs_engine_stuck_reads", "Reads by threads that have waited for more than a second.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Stuck) })
	gauge("lsiofs_engine_in_flight", "Reads that are under way.", func(s *sample) float64 { return float64(s.Pipeline.Engine.InFlight) })
	gauge("lsiofs_engine_in_flight_bytes", "Bytes of reads that are under way.", func(s *sample) float64 { return float64(s.Pipeline.Engine.InFlightBytes) })

	counter("lsiofs_storage_retries_total", "Reads that were made again after an error that is likely to pass.", func(s *sample) float64 { return float64(s.Pipeline.Retries.Retries) })
	counter("lsiofs_storage_retries_failed_total", "Reads that failed although they were made again.", func(s *sample) float64 { return float64(s.Pipeline.Retries.GaveUp) })

	gauge("lsiofs_memory_budget_bytes", "The budget for data that is kept.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BudgetBytes) })
	gauge("lsiofs_memory_held_bytes", "Bytes of the budget that are held.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.HeldBytes) })
	counter("lsiofs_fetch_pieces_read_total", "Pieces that were read.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesRead) })
	counter("lsiofs_fetch_pieces_reread_total", "Pieces that were read again.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesReread) })
	counter("lsiofs_fetch_pieces_dropped_total", "Pieces that were dropped over budget.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesDropped) })
	counter("lsiofs_fetch_cancelled_reads_total", "Reads ahead that were called off before they had begun.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.ReadsCancelled) })
	counter("lsiofs_fetch_cancelled_bytes_total", "Bytes of reads ahead that were called off before they had begun.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BytesCancelled) })
	counter("lsiofs_fetch_read_bytes_total", "Decoded bytes that were read.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BytesRead) })
	gauge("lsiofs_fetch_mapped_bytes", "Bytes of the page cache that are mapped.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.MappedBytes) })
	counter("lsiofs_fetch_mapped_records_total", "Records that went out from the page cache.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.RecordsMapped) })
	gauge("lsiofs_leases", "Mapped files that nobody can write to without waiting for a moment.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Leases.Held) })
	counter("lsiofs_leases_broken_total", "Leases that were given up to writers.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Leases.Broken) })
	counter("lsiofs_fetch_records_total", "Records that have gone out.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.RecordsOut) })
	counter("lsiofs_fetch_hits_total", "Records that were in memory when wanted.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Hits) })
	counter("lsiofs_fetch_waits_total", "Records that a reader waited for.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Waits) })
	counter("lsiofs_fetch_wait_seconds_total", "Time that readers have waited.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.WaitNanos) / 1e9 })
	gauge("lsiofs_fetch_open_decoders", "Decoders of compressed shards that are open.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.OpenDecoders) })
	counter("lsiofs_spool_damaged_pieces_total", "Pieces that could not be read back from the spool, or were other bytes than were written, and were decoded again.", func(s *sample) float64 {
		if spool := s.Pipeline.Fetch.Spool; spool != nil {
			return float64(spool.DamagedPieces)
		}
		return 0
	})
	counter("lsiofs_changed_shards_total", "Shards that were found changed since they were indexed.", func(s *sample) float64 {
		if c := s.Pipeline.Changed; c != nil {
			return float64(c.Count)
		}
		return 0
	})
	counter("lsiofs_fetch_errors_total", "Records that could not be had.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Errors) })
	return metrics
}

// sample takes a sample. It does not start a new interval of the rates that status shows.
func (t *tree) sample() *sample {
	s := &sample{view: t.view.Load(), times: t.recorder.now()}
	s.Records, s.Pipeline = t.view.Load().records, t.dataset.Status()
	s.Traffic.SentBytes, s.Traffic.Reads = t.traffic.bytes.Load(), t.traffic.reads.Load()
	s.Traffic.OpenHandles, s.Traffic.Opened = t.handles.count()
	_, s.Errors = t.problems.snapshot()
	_, s.Refusals = t.refusals.snapshot()
	s.Sources = t.sourcesNow(s.view)
	return s
}

// sourcesNow returns nil if the dataset is not a mixture, or if what was delivered can't be
// determined.
func (t *tree) sourcesNow(v *view) []sourceReport {
	if m, is := t.dataset.(mixture); !is || m.Sources() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), layoutPatience)
	defer cancel()
	counts, err := v.delivered(ctx)
	if err != nil {
		return nil // status reports it
	}
	sources, err := t.sourceReports(v, counts)
	if err != nil {
		return nil
	}
	return sources
}
