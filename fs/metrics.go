package fs

import (
	"context"
	"sort"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
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
	if m, is := t.dataset.(*pipeline.Dataset); !is || m.Sources() == nil {
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

// remoteMetrics are the metrics for datasets at a bucket or web server.
func remoteMetrics() []metric[remote.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[remote.Stats]
	return []metric[remote.Stats]{
		labelled("lsiofs_remote_requests_total", "Responses of the bucket or web server, by status; none: no response.", "status", func(s *remote.Stats) map[string]uint64 { return s.Requests }),
		labelled("lsiofs_remote_retries_total", "Retried requests, by reason.", "reason", func(s *remote.Stats) map[string]uint64 { return s.Retries }),
		of(counter, "lsiofs_remote_bytes_total", "Bytes of responses.", func(s *remote.Stats) float64 { return float64(s.Bytes) }),
		of(counter, "lsiofs_remote_throttled_total", "Responses that asked for fewer requests.", func(s *remote.Stats) float64 { return float64(s.Throttled) }),
		of(counter, "lsiofs_remote_hedges_total", "Hedges: second requests for a slow first one.", func(s *remote.Stats) float64 { return float64(s.Hedges) }),
		of(counter, "lsiofs_remote_hedges_won_total", "Hedges whose response came first.", func(s *remote.Stats) float64 { return float64(s.HedgesWon) }),
		of(counter, "lsiofs_remote_price_dollars_total", "Cost of the requests at list price.", func(s *remote.Stats) float64 { return s.PriceDollars }),
		of(gauge, "lsiofs_remote_slots", "Limit of requests in flight.", func(s *remote.Stats) float64 { return float64(s.Slots) }),
		of(gauge, "lsiofs_remote_slots_in_use", "Requests in flight.", func(s *remote.Stats) float64 { return float64(s.InUse) }),
		of(gauge, "lsiofs_remote_waiting_reads", "Reads waiting for a slot.", func(s *remote.Stats) float64 { return float64(s.Waiting) }),
		of(gauge, "lsiofs_remote_retrying_reads", "Reads waiting to be retried.", func(s *remote.Stats) float64 { return float64(s.InRetry) }),
		{
			gauge, "lsiofs_remote_first_byte_seconds", "Recent time to first byte of responses.", "quantile",
			func(s *remote.Stats, out func(float64, string)) {
				out(s.FirstByte.P50, "0.5")
				out(s.FirstByte.P95, "0.95")
				out(s.FirstByte.P99, "0.99")
			},
		},
	}
}

// cacheMetrics are the metrics of the disk cache.
func cacheMetrics() []metric[diskcache.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[diskcache.Stats]
	return []metric[diskcache.Stats]{
		of(gauge, "lsiofs_cache_on", "1 while the disk cache stores what is read; 0 while it is full or off.", func(s *diskcache.Stats) float64 {
			if s.State == "on" {
				return 1
			}
			return 0
		}),
		of(gauge, "lsiofs_cache_bytes", "Size of the disk cache's directory, of all mounts.", func(s *diskcache.Stats) float64 { return float64(s.Bytes) }),
		of(gauge, "lsiofs_cache_bound_bytes", "Limit of that size.", func(s *diskcache.Stats) float64 { return float64(s.Bound) }),
		of(gauge, "lsiofs_cache_fill_ratio", "Progress of filling the cache, 0 to 1.", func(s *diskcache.Stats) float64 { return s.Fill }),
		of(counter, "lsiofs_cache_hit_pages_total", "Pages read from the cache.", func(s *diskcache.Stats) float64 { return float64(s.Hits) }),
		of(counter, "lsiofs_cache_missed_pages_total", "Pages that were not in the cache.", func(s *diskcache.Stats) float64 { return float64(s.Misses) }),
		of(counter, "lsiofs_cache_bad_pages_total", "Pages of the cache that were corrupt.", func(s *diskcache.Stats) float64 { return float64(s.BadPages) }),
		of(counter, "lsiofs_cache_written_pages_total", "Pages written to the cache.", func(s *diskcache.Stats) float64 { return float64(s.Written) }),
	}
}

// growingMetrics are the metrics for growing datasets.
func growingMetrics() []metric[snapshot.Status] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[snapshot.Status]
	return []metric[snapshot.Status]{
		{
			gauge, "lsiofs_growing_epoch", "Latest epoch of the run.", "",
			func(s *snapshot.Status, out func(float64, string)) {
				if s.Epoch != nil {
					out(float64(*s.Epoch), "")
				}
			},
		},
		of(gauge, "lsiofs_growing_new_records", "Records of the next epoch that are not in the latest.", func(s *snapshot.Status) float64 { return float64(s.NewRecords) }),
		of(gauge, "lsiofs_growing_new_units", "Units of the next epoch that are not in the latest.", func(s *snapshot.Status) float64 { return float64(s.NewUnits) }),
		of(gauge, "lsiofs_growing_settling_files", "Files that may still be being written.", func(s *snapshot.Status) float64 { return float64(s.Settling) }),
		of(gauge, "lsiofs_growing_waiting_shards", "Files that are incomplete, or of another kind.", func(s *snapshot.Status) float64 { return float64(s.WaitingShards) }),
		of(counter, "lsiofs_growing_watch_overflows_total", "Times that the kernel dropped change notifications.", func(s *snapshot.Status) float64 { return float64(s.Overflows) }),
		of(gauge, "lsiofs_growing_scan_seconds", "Duration of the last scan of the directories.", func(s *snapshot.Status) float64 { return s.LastScanSeconds }),
	}
}

// sourceMetrics are the metrics for the sources of a mixture, by name.
func sourceMetrics() []metric[[]sourceReport] {
	of := func(name, help string, value func(s *sourceReport) float64) metric[[]sourceReport] {
		return metric[[]sourceReport]{gaugeKind, name, help, "source", func(sources *[]sourceReport, out func(float64, string)) {
			for i := range *sources {
				out(value(&(*sources)[i]), (*sources)[i].Name)
			}
		}}
	}
	return []metric[[]sourceReport]{
		of("lsiofs_source_records", "Records of the source among the epoch's delivered records.", func(s *sourceReport) float64 { return float64(s.Records) }),
		of("lsiofs_source_share", "Share of the source in the epoch's delivered records.", func(s *sourceReport) float64 { return s.Share }),
		of("lsiofs_source_passes_an_epoch", "Passes of an epoch through the source.", func(s *sourceReport) float64 { return s.Passes }),
	}
}

// cubeMetrics are the metrics for crops of Zarr arrays.
func cubeMetrics() []metric[crops.Stats] {
	counter, gauge := counterKind, gaugeKind
	of := metricOf[crops.Stats]
	return []metric[crops.Stats]{
		of(counter, "lsiofs_zarr_chunks_decoded_total", "Chunks of arrays decoded, or read uncompressed.", func(s *crops.Stats) float64 { return float64(s.Decoded) }),
		of(counter, "lsiofs_zarr_chunks_found_total", "Times that a needed chunk was already decoded.", func(s *crops.Stats) float64 { return float64(s.Found) }),
		of(counter, "lsiofs_zarr_stored_bytes_total", "Stored size of the decoded chunks in bytes.", func(s *crops.Stats) float64 { return float64(s.StoredBytes) }),
		of(counter, "lsiofs_zarr_blocks_decoded_total", "Blocks decoded without the rest of their chunk.", func(s *crops.Stats) float64 { return float64(s.Blocks) }),
		of(gauge, "lsiofs_zarr_held_bytes", "Bytes of decoded chunks in memory.", func(s *crops.Stats) float64 { return float64(s.HeldBytes) }),
	}
}

// stageMetrics are counters and gauges for each stage, which is their label.
func stageMetrics() []metric[explain.Snapshot] {
	of := func(kind metricKind, name, help string, value func(s *explain.Snapshot, stage meter.Stage) float64) metric[explain.Snapshot] {
		return metric[explain.Snapshot]{kind, name, help, "stage", func(s *explain.Snapshot, out func(float64, string)) {
			for stage := range meter.Stage(meter.Stages) {
				out(value(s, stage), stage.String())
			}
		}}
	}
	return []metric[explain.Snapshot]{
		of(counterKind, "lsiofs_stage_busy_seconds_total", "Time that a stage was busy, summed over goroutines; for storage: time with any read in flight.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Busy[stage]) / 1e9 }),
		of(counterKind, "lsiofs_stage_wait_seconds_total", "Time that readers' requests spent in a stage or waiting for it.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Waited(stage)) / 1e9 }),
		of(counterKind, "lsiofs_stage_bytes_total", "Bytes produced by a stage.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Bytes[stage]) }),
		of(gaugeKind, "lsiofs_stage_queued", "Items in a stage: reads, shards being decoded, readers' requests.",
			func(s *explain.Snapshot, stage meter.Stage) float64 { return float64(s.Queued[stage]) }),
	}
}

// family is one metric of the file metrics with all its values, in Prometheus' text format
// (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4). It is written by this
// package because the client library, with which the tests read it, would bring in all of protobuf:
// 1.3 MB of the program.
type family struct {
	name, help string
	kind       metricKind
	label      string // the name of the label; "" for a metric without one
	values     []labelledValue
}

type metricKind string

const (
	counterKind metricKind = "counter"
	gaugeKind   metricKind = "gauge"
)

// labelledValue is a value, and its value of the family's label.
type labelledValue struct {
	of    string
	value float64
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// MetricLabel returns a label with its value in the text format of metrics: name="value".
func MetricLabel(name, value string) string {
	return name + `="` + labelEscapes.Replace(value) + `"`
}

// exposition renders families sorted by name, and the values of each by label. A family without
// values is left out. It sorts its argument in place.
func exposition(families []family) []byte {
	// slices.SortFunc would be compiled for each type: 24 KB of the program.
	sort.Slice(families, func(i, j int) bool { return families[i].name < families[j].name })
	var b []byte
	for i := range families {
		b = families[i].appendTo(b)
	}
	return b
}

func (f *family) appendTo(b []byte) []byte {
	if len(f.values) == 0 {
		return b
	}
	sort.Slice(f.values, func(i, j int) bool { return f.values[i].of < f.values[j].of })
	b = append(append(append(b, "# HELP "...), f.name...), ' ')
	b = append(append(b, helpEscapes.Replace(f.help)...), '\n')
	b = append(append(append(b, "# TYPE "...), f.name...), ' ')
	b = append(append(b, f.kind...), '\n')
	for _, v := range f.values {
		b = append(b, f.name...)
		if f.label != "" {
			b = append(append(append(b, '{'), MetricLabel(f.label, v.of)...), '}')
		}
		b = strconv.AppendFloat(append(b, ' '), v.value, 'g', -1, 64)
		b = append(b, '\n')
	}
	return b
}

// metric is a family, and how to compute its values from S, a part of a mount's state: values calls
// out with each value and its label, "" for a metric without one.
type metric[S any] struct {
	kind       metricKind
	name, help string
	label      string
	values     func(s *S, out func(value float64, label string))
}

// metricOf is a metric of one value without a label.
func metricOf[S any](kind metricKind, name, help string, value func(s *S) float64) metric[S] {
	return metric[S]{kind, name, help, "", func(s *S, out func(float64, string)) { out(value(s), "") }}
}

// labelled is a counter for each key of a map.
func labelled[S any](name, help, label string, values func(s *S) map[string]uint64) metric[S] {
	return metric[S]{counterKind, name, help, label, func(s *S, out func(float64, string)) {
		for of, n := range values(s) {
			out(float64(n), of)
		}
	}}
}

// familiesOf appends the families of metrics with their values in s; none if s is nil.
func familiesOf[S any](to []family, metrics []metric[S], s *S) []family {
	if s == nil {
		return to
	}
	for _, m := range metrics {
		f := family{name: m.name, help: m.help, kind: m.kind, label: m.label}
		m.values(s, func(value float64, of string) { f.values = append(f.values, labelledValue{of, value}) })
		to = append(to, f)
	}
	return to
}
