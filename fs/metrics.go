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
		gaugeKind, "lsiofs_engine_info", "The I/O engine in use.", "engine",
		func(s *sample, out func(float64, string)) { out(1, s.Pipeline.Engine.Engine) },
	}}
	counter := func(name, help string, value func(s *sample) float64) {
		metrics = append(metrics, metricOf(counterKind, name, help, value))
	}
	gauge := func(name, help string, value func(s *sample) float64) {
		metrics = append(metrics, metricOf(gaugeKind, name, help, value))
	}
	counter("lsiofs_sent_bytes_total", "Bytes of streams sent to clients.", func(s *sample) float64 { return float64(s.Traffic.SentBytes) })
	counter("lsiofs_sent_reads_total", "Reads of streams that returned bytes.", func(s *sample) float64 { return float64(s.Traffic.Reads) })
	counter("lsiofs_reader_seconds_total", "Sum of all readers' time, each from its first read to a minute after its last.", func(s *sample) float64 { return float64(s.times.Recent) / 1e9 })
	counter("lsiofs_opened_total", "Opens of streams.", func(s *sample) float64 { return float64(s.Traffic.Opened) })
	gauge("lsiofs_open_handles", "Open streams.", func(s *sample) float64 { return float64(s.Traffic.OpenHandles) })
	counter("lsiofs_failed_requests_total", "Requests answered with EIO.", func(s *sample) float64 { return float64(s.Errors) })
	counter("lsiofs_checkpoint_refusals_total", "Refused checkpoints.", func(s *sample) float64 { return float64(s.Refusals) })
	counter("lsiofs_checkpoint_restores_total", "Restored checkpoints.", func(s *sample) float64 { return float64(s.view.number - 1) })
	gauge("lsiofs_epoch", "The epoch of the worker files.", func(s *sample) float64 { return float64(s.view.position.Epoch) })
	gauge("lsiofs_records", "Records of the dataset.", func(s *sample) float64 { return float64(s.Records) })
	gauge("lsiofs_shards", "Shards of the dataset.", func(s *sample) float64 { return float64(s.Pipeline.Shards) })
	gauge("lsiofs_files_left_out", "Files below the dataset that are not shards.", func(s *sample) float64 { return float64(s.Pipeline.FilesLeftOut) })

	counter("lsiofs_engine_reads_total", "Reads completed by the I/O engine.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Reads) })
	counter("lsiofs_engine_read_bytes_total", "Bytes read by the I/O engine.", func(s *sample) float64 { return float64(s.Pipeline.Engine.ReadBytes) })
	counter("lsiofs_engine_cached_reads_total", "Reads served from the page cache at once.", func(s *sample) float64 { return float64(s.Pipeline.Engine.CachedReads) })
	counter("lsiofs_engine_direct_reads_total", "Reads that bypassed the page cache.", func(s *sample) float64 { return float64(s.Pipeline.Engine.DirectReads) })
	counter("lsiofs_engine_errors_total", "Failed reads of the I/O engine.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Errors) })
	counter("lsiofs_engine_unwanted_total", "Reads cancelled while queued for the I/O engine.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Unwanted) })
	counter("lsiofs_engine_remote_reads_total", "Reads of files on FUSE or a network file system.", func(s *sample) float64 { return float64(s.Pipeline.Engine.RemoteReads) })
	gauge("lsiofs_engine_stuck_reads", "Reads by threads that have been waiting for more than a second.", func(s *sample) float64 { return float64(s.Pipeline.Engine.Stuck) })
	gauge("lsiofs_engine_in_flight", "Reads in flight.", func(s *sample) float64 { return float64(s.Pipeline.Engine.InFlight) })
	gauge("lsiofs_engine_in_flight_bytes", "Bytes of reads in flight.", func(s *sample) float64 { return float64(s.Pipeline.Engine.InFlightBytes) })

	counter("lsiofs_storage_retries_total", "Reads retried after a temporary error.", func(s *sample) float64 { return float64(s.Pipeline.Retries.Retries) })
	counter("lsiofs_storage_retries_failed_total", "Reads that failed after all retries.", func(s *sample) float64 { return float64(s.Pipeline.Retries.GaveUp) })

	gauge("lsiofs_memory_budget_bytes", "Budget for data kept in memory.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BudgetBytes) })
	gauge("lsiofs_memory_held_bytes", "Bytes of the budget in use.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.HeldBytes) })
	counter("lsiofs_fetch_pieces_read_total", "Pieces read.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesRead) })
	counter("lsiofs_fetch_pieces_reread_total", "Pieces read again.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesReread) })
	counter("lsiofs_fetch_pieces_dropped_total", "Pieces dropped to stay within the budget.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.PiecesDropped) })
	counter("lsiofs_fetch_cancelled_reads_total", "Read-ahead requests cancelled before they started.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.ReadsCancelled) })
	counter("lsiofs_fetch_cancelled_bytes_total", "Bytes of read-ahead requests cancelled before they started.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BytesCancelled) })
	counter("lsiofs_fetch_read_bytes_total", "Decoded bytes read.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.BytesRead) })
	gauge("lsiofs_fetch_mapped_bytes", "Bytes of the page cache that are mapped.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.MappedBytes) })
	counter("lsiofs_fetch_mapped_records_total", "Records delivered from the page cache.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.RecordsMapped) })
	gauge("lsiofs_leases", "Mapped files with a lease: writers have to wait a moment.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Leases.Held) })
	counter("lsiofs_leases_broken_total", "Leases released to writers.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Leases.Broken) })
	counter("lsiofs_fetch_records_total", "Records delivered.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.RecordsOut) })
	counter("lsiofs_fetch_hits_total", "Records that were in memory in time.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Hits) })
	counter("lsiofs_fetch_waits_total", "Records that a reader waited for.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Waits) })
	counter("lsiofs_fetch_wait_seconds_total", "Time that readers spent waiting.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.WaitNanos) / 1e9 })
	gauge("lsiofs_fetch_open_decoders", "Open decoders of compressed shards.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.OpenDecoders) })
	counter("lsiofs_spool_damaged_pieces_total", "Pieces of the spool that were unreadable or corrupt, and were decoded again.", func(s *sample) float64 {
		if spool := s.Pipeline.Fetch.Spool; spool != nil {
			return float64(spool.DamagedPieces)
		}
		return 0
	})
	counter("lsiofs_changed_shards_total", "Shards that have changed since they were indexed.", func(s *sample) float64 {
		if c := s.Pipeline.Changed; c != nil {
			return float64(c.Count)
		}
		return 0
	})
	counter("lsiofs_fetch_errors_total", "Records that could not be read.", func(s *sample) float64 { return float64(s.Pipeline.Fetch.Errors) })
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
