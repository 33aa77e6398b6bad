package mounting

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/fs"
)

// drainTime is how long open files can still be read after a signal: enough for a program to finish
// a batch, but less than the 10 s after which docker stop kills.
const drainTime = 8 * time.Second

// stateEvery is the interval of a served mount's status reports.
const stateEvery = 5 * time.Second

// serve waits for the end of the mount. The first signal unmounts and gives readers a while to
// finish; the second (force) ends that wait.
func serve(ctx, force context.Context, m *fs.Mount, h *heap, rep Reporter, log *slog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Wait() }()
	tick := time.NewTicker(stateEvery)
	defer tick.Stop()
	for signalled := false; !signalled; {
		select {
		case err := <-ended:
			return exit.With(exit.Mount, err)
		case <-tick.C:
			h.look()
			rep.Serving(m.Sentence)
		case <-ctx.Done():
			signalled = true
		}
	}
	rep.Unmounting()
	log.Info("unmounting", "waiting for open files to close, at most", drainTime)
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	defer context.AfterFunc(force, cancel)()
	if err := m.Unmount(drain); err != nil && (drain.Err() == nil || !m.End()) {
		return exit.Errorf(exit.Mount, "%w: %w", errReadersLeft, err)
	}
	return exit.With(exit.Mount, <-ended)
}

// errReadersLeft is wrapped when programs still had files open at the end.
var errReadersLeft = errors.New("unmounted, but not cleanly")

// tellStatus logs a line of status for each signal until it is stopped.
func tellStatus(ctx context.Context, m *fs.Mount, asked <-chan os.Signal, log *slog.Logger) (stop func()) {
	ended := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for {
			select {
			case <-asked:
				m.LogStatus(ctx, log)
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); telling.Wait() }
}
