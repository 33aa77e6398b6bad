package mounting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"golang.org/x/sys/unix"

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

// servedHeapPercent is the heap growth between garbage collections while a mount is served. FUSE's
// library keeps a buffer for every length of reads that it has seen, and frees those that were
// unused for two collections. With Go's default of 100 %, a client that reads in many lengths
// creates new buffers faster than old ones are freed: 350 MiB of them, regardless of --memory. From
// 50 % down their number settles; with 30 % at about the size of the rest of the heap. Answering
// reads makes no garbage, so collections stay rare.
const servedHeapPercent = 30

const (
	// servedHeapBytes is how far the heap of a mount may grow in addition to --memory. The library
	// keeps its buffers once per GOMAXPROCS: with 48 of these and reads of every length they
	// settled at 200 to 490 MiB with servedHeapPercent alone, and at 70 MiB with a bound. There is
	// room for 64 replies of 1 MiB in use, with their copies.
	servedHeapBytes = 112 << 20
	// When less than a step is left between the live heap and its bound, the bound is raised to the
	// live heap plus two steps. A step is the larger of heapStepBytes and a heapStepPart-th of the
	// live heap. Live memory can't be collected, and trying to takes half of the processors. Go
	// stays 3 % below the bound and counts its own tables, too: 32 MiB are nothing next to a GiB.
	heapStepBytes = 16 << 20
	heapStepPart  = 8
)

// heapStep returns the step for that many live bytes.
func heapStep(live int64) int64 { return max(heapStepBytes, live/heapStepPart) }

// heap bounds how far the garbage collector lets memory grow.
type heap struct {
	limit int64 // 0: the user has set one
}

// boundHeap bounds the heap of a mount with that much --memory. The bound is the sum of the live
// heap, half of --memory (the most that decoders and tables take, as records are not on the heap)
// and servedHeapBytes. It leaves GOGC and GOMEMLIMIT alone if the user has set them.
func boundHeap(memoryBytes int64) *heap {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(servedHeapPercent)
	}
	h := &heap{}
	if os.Getenv("GOMEMLIMIT") == "" {
		runtime.GC() // so that memory used only while opening the dataset does not count
		live := liveHeap()
		h.limit = raised(live+memoryBytes/2+servedHeapBytes, live)
		debug.SetMemoryLimit(h.limit)
	}
	return h
}

// look raises the bound when the live heap comes close to it. Buffers in the library's pools stay
// live, too, until the second collection in which they are unused. So if the bound seems too low,
// it first collects twice. Otherwise, with reads of every length on 48 processors, the bound
// followed the buffers.
func (h *heap) look() {
	if h.limit == 0 || raised(h.limit, liveHeap()) == h.limit {
		return
	}
	runtime.GC()
	runtime.GC()
	if limit := raised(h.limit, liveHeap()); limit != h.limit {
		h.limit = limit
		debug.SetMemoryLimit(limit)
	}
}

// raised returns the new bound, given the old one and the live bytes.
func raised(limit, live int64) int64 {
	if step := heapStep(live); live > limit-step {
		return live + 2*step
	}
	return limit
}

// liveHeap returns the number of bytes that the last collection found live.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// owner is a process that a mount serves and must not outlive.
type owner struct {
	file *os.File // a pidfd
	wait sync.WaitGroup
}

// whileAlive returns contexts that end with ctx and force, and both also when the process pid has
// ended for any reason, because its readers then need no time to finish. It watches a pidfd:
// children of the process would keep a pipe open, and PR_SET_PDEATHSIG depends on threads. The
// caller calls release once when it no longer needs the contexts. If pid is 0, the contexts are ctx
// and force themselves.
func whileAlive(ctx, force context.Context, pid int) (_, _ context.Context, release func(), err error) {
	if pid == 0 {
		return ctx, force, func() {}, nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, nil, nil, exit.Errorf(exit.Mount, "--while-pid (%d): no such process, or it has already ended", pid)
	case err != nil:
		return nil, nil, nil, exit.Errorf(exit.Mount, "--while-pid (%d): %w: this container's seccomp profile may forbid pidfd_open", pid, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	force, cancelForce := context.WithCancel(force)
	o := &owner{file: os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid))}
	o.wait.Go(func() {
		if o.ended() {
			cancel()
			cancelForce()
		}
	})
	return ctx, force, func() {
		_ = o.file.Close() // this ends the wait
		o.wait.Wait()
		cancel()
		cancelForce()
	}, nil
}

// ended waits until the process has ended, and returns true, or until the file is closed, and
// returns false.
func (o *owner) ended() bool {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}) == nil
}
