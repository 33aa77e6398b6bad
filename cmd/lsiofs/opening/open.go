package opening

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// openEndTime is how long opening a dataset may take to end after the user interrupts it. A journal
// contains what has been indexed so far.
const openEndTime = 700 * time.Millisecond

// Open opens a dataset and attaches an exit code to errors. If ctx ends while storage does not
// answer, Open does not wait, because the process is about to end.
func Open(ctx context.Context, log *slog.Logger, s spec.Spec, o pipeline.Options) (*pipeline.Dataset, error) {
	o.Log = log
	boundHeap(s.MemoryBytes)
	return patiently(ctx, log, func() (*pipeline.Dataset, error) { return pipeline.Open(ctx, s, o) })
}

// IndexPart is to pipeline.IndexPart as Open is to pipeline.Open.
func IndexPart(ctx context.Context, log *slog.Logger, s spec.Spec, o pipeline.Options, part catalog.PassPart) (catalog.Indexed, error) {
	o.Log = log
	boundHeap(s.MemoryBytes)
	return patiently(ctx, log, func() (catalog.Indexed, error) { return pipeline.IndexPart(ctx, s, o, part) })
}

// patiently waits for open, but not for long once ctx has ended.
func patiently[T any](ctx context.Context, log *slog.Logger, open func() (T, error)) (T, error) {
	type opened struct {
		value T
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		v, err := open()
		done <- opened{v, err}
	}()
	select {
	case r := <-done:
		return r.value, exit.With(exit.Dataset, r.err)
	case <-ctx.Done():
	}
	limit := time.NewTimer(openEndTime)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.value, exit.With(exit.Dataset, r.err)
	case <-limit.C:
		log.Warn("storage does not answer: not waiting for its outstanding reads")
		var none T
		return none, ctx.Err()
	}
}

// OpenShowing is Open with progress shown on the ui.
func OpenShowing(ctx context.Context, u *terminal.UI, log *slog.Logger, s spec.Spec, o pipeline.Options) (*pipeline.Dataset, error) {
	if text := MemoryWarning(s); text != "" {
		u.Warn(text)
	}
	v, w := NewPass(u), NewWaiting(u)
	defer w.Clear()
	defer v.Clear()
	o.Progress, o.Waiting = v.Show, func(s snapshot.Status) { w.Show(WaitingFor(s)) }
	d, err := Open(ctx, log, s, o)
	if err == nil {
		w.Clear()
		v.Clear()
		TellSelection(u, d.Catalog())
	}
	return d, err
}

// closeTime is how long pending reads may take to end once they are no longer needed. The sum of
// this, drainTime and the wait of Mount.End is less than the 10 s of docker stop.
const closeTime = time.Second

// Close closes d and returns the first of the two errors. If storage does not answer, so that the
// dataset can't be closed, it is left open until the process ends.
func Close(d *pipeline.Dataset, err error, log *slog.Logger) error {
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	limit := time.NewTimer(closeTime)
	defer limit.Stop()
	select {
	case cerr := <-closed:
		if err == nil {
			return cerr
		}
	case <-limit.C:
		log.Warn("storage does not answer: not waiting for its outstanding reads", "reads", d.ReadsUnderWay())
	}
	return err
}

// besideBytes is a process's memory in addition to --memory (manual, limits).
const besideBytes = 150 << 20

// MemoryWarning returns a warning if a process with this spec may take more memory than the machine
// or its control group allows, or "".
func MemoryWarning(s spec.Spec) string { return memoryWarning(s.MemoryBytes, cgroup.AllowedBytes()) }

func memoryWarning(memoryBytes, allowedBytes int64) string {
	if memoryBytes <= allowedBytes-besideBytes {
		return ""
	}
	text := fmt.Sprintf("--memory %s does not fit: lsiofs uses that and up to %s more, and this process may use %s, so it may be killed; ",
		terminal.Size(uint64(memoryBytes)), terminal.Size(besideBytes), terminal.Size(uint64(allowedBytes)))
	if fits := spec.MemoryWithin(allowedBytes); fits < memoryBytes && fits <= allowedBytes-besideBytes {
		return text + fmt.Sprintf("give --memory %s, which is the default here, or raise its control group's limit (memory.max)", terminal.Size(uint64(fits)))
	}
	return text + "raise its control group's limit (memory.max)"
}

// leastHeapBytes is the lowest bound of the heap: below it, collecting would take most of the time.
const leastHeapBytes = 64 << 20

// boundHeap makes the collector work harder when the heap comes close to what the process may use
// minus --memory, which is outside the heap. It leaves GOMEMLIMIT alone if the user has set it. A
// mount bounds its heap more tightly once it is served.
func boundHeap(memoryBytes int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(max((cgroup.AllowedBytes()-memoryBytes)/4*3, leastHeapBytes))
}
