package fs

import (
	"context"
	"log/slog"
)

// LogStatus writes a line of status to a log. Like reading status, it starts a new interval for the
// rates since the last look.
func (m *Mount) LogStatus(ctx context.Context, log *slog.Logger) {
	r, err := m.tree.report(ctx)
	if err != nil {
		log.Error("status", "error", err)
		return
	}
	log.LogAttrs(ctx, slog.LevelInfo, "status", r.line()...)
}

// line returns the attributes of a line of status.
func (r *statusReport) line() []slog.Attr {
	f := r.Pipeline.Fetch
	return []slog.Attr{
		slog.String("bottleneck", r.Explain.Verdict.Text),
		slog.String("mount_point", r.MountPoint),
		slog.Uint64("epoch", r.Epoch),
		slog.Uint64("delivered_records", r.DeliveredRecords),
		slog.Uint64("records", r.Records),
		slog.Int64("sent_bytes", r.Traffic.SentBytes),
		slog.Float64("bytes_per_second", r.Traffic.BytesPerSecond.SinceMount),
		slog.Float64("bytes_per_second_since_last", r.Traffic.BytesPerSecond.SinceLast),
		slog.Int("open_handles", r.Traffic.OpenHandles),
		slog.Int64("held_bytes", f.HeldBytes),
		slog.Int64("budget_bytes", f.BudgetBytes),
		slog.Uint64("retries", r.Pipeline.Retries.Retries),
		slog.Uint64("errors", r.Errors),
	}
}
