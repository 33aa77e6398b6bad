package hunt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// hunter is a mount under test: a dataset and its storage, its server, what was done and what was
// found.
type hunter struct {
	t      *testing.T
	seed   uint64
	way    way
	source source
	order  order
	d      *dataset
	place
	streams []*stream
	point   string // where it is mounted
	tmp     string // the server's temporary directory
	spool   string
	index   string
	server  *serve.Server
	spoilt  bool // part of the spool was overwritten
	ledger

	ctx    context.Context // of the readers
	cancel context.CancelFunc
	// target is the shard that is being acted on, or was last.
	target  atomic.Int64
	clients []*client
	running sync.WaitGroup

	// view is held for writing while a position is restored, and for reading while a worker file is
	// opened.
	view     sync.RWMutex
	epoch    int
	restores int

	reads, bytes, errors, opened atomic.Int64

	findings struct {
		sync.Mutex
		texts []string
	}
}

// find notes a failure, and ends the schedule.
func (h *hunter) find(format string, args ...any) {
	h.findings.Lock()
	defer h.findings.Unlock()
	h.findings.texts = append(h.findings.texts, fmt.Sprintf(format, args...))
	h.cancel()
}

// newHunter makes the dataset on its source. Nothing is mounted yet.
func newHunter(t *testing.T, s schedule) *hunter {
	h := &hunter{t: t, seed: s.seed, way: s.way, source: s.source, order: order{s.mixed, s.way.chunk}, d: makeDataset(s.way.k)}
	h.ctx, h.cancel = context.WithCancel(t.Context())
	t.Cleanup(h.cancel)
	h.streams = h.d.streamsOf(t, h.order)
	h.place = s.source.mount(t, h.d)
	h.start = time.Now()
	h.point, h.tmp, h.spool, h.index = t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	return h
}

// arguments returns the program's arguments for this dataset and order.
func (h *hunter) arguments(verb ...string) []string {
	args := append(verb, h.d.k.flags...)
	args = append(append(args, h.order.flags()...), h.way.flags...)
	return append(args, "--index-dir", h.index, "--spool-dir", h.spool, "--log-level", "error")
}

// mount starts the server. descriptors is its limit of descriptors, 0 for the usual one: with a
// small limit, shards are opened again and again.
func (h *hunter) mount(descriptors int, more ...string) {
	h.t.Helper()
	args := append([]string{lsiofs}, h.arguments("mount", h.dir, h.point)...)
	if descriptors > 0 {
		args = append([]string{"prlimit", fmt.Sprintf("--nofile=%d", descriptors)}, args...)
	}
	cmd := exec.Command(args[0], append(args[1:], more...)...)
	cmd.Env = environmentIn(h.tmp)
	var err error
	h.server, err = serve.Start(cmd, h.point)
	require.NoError(h.t, err)
	server, point := h.server, h.point
	// Anything that hangs in the mount is woken when its server dies.
	watchdog := time.AfterFunc(endLimit, func() {
		h.find("it took longer than %v: its server is killed", endLimit)
		h.release()
		server.Cmd.Process.Kill()
	})
	h.t.Cleanup(func() {
		watchdog.Stop()
		if !server.Ended(0) {
			server.Cmd.Process.Kill()
			<-server.Exited
		}
		if serve.IsMount(point) {
			serve.Detach(point)
		}
	})
	require.NoError(h.t, h.server.WaitUntilMounted())
}

// release ends stalls.
func (h *hunter) release() {
	if h.fuse != nil {
		h.fuse.Fail()
	}
}

// startReaders starts the readers, which run until stop.
func (h *hunter) startReaders() {
	for n := range readers {
		c, err := h.newClient(n, &readers[n])
		require.NoError(h.t, err)
		h.clients = append(h.clients, c)
		h.running.Go(func() { c.run(h.ctx, h) })
	}
}

// stop ends the readers and waits for them.
func (h *hunter) stop() {
	h.cancel()
	h.running.Wait()
	for _, c := range h.clients {
		c.close()
	}
	h.clients = nil
}

// pause waits for a time, or until the readers have ended.
func (h *hunter) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-h.ctx.Done():
	}
}

// turns returns how many turns the readers of a name have taken together.
func (h *hunter) turns(name string) (n int64) {
	for _, c := range h.clients {
		if c.name == name {
			n += c.turns.Load()
		}
	}
	return n
}

// healthyGoOn waits until the readers of healthy shards have made progress.
func (h *hunter) healthyGoOn(while string) {
	h.t.Helper()
	for _, name := range []string{healthyReader, healthyMapper} {
		before := h.turns(name)
		deadline := time.Now().Add(endLimit / 3)
		for h.ctx.Err() == nil && h.turns(name) < before+6 {
			if time.Now().After(deadline) {
				h.find("%s: none came further for %v while %s", name, endLimit/3, while)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// readThrough reads streams from front to back, several at a time. Each read returns its bytes, or
// an error that has a reason.
func (h *hunter) readThrough(streams []*stream) {
	h.t.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for n := range 4 {
		c, err := h.newClient(100+n, &reader{name: "reader of everything"})
		require.NoError(h.t, err)
		all.Go(func() {
			defer c.close()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(streams) {
					return
				}
				if err := h.readWhole(c, streams[i]); err != nil {
					h.find("%s: %v", c.name, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func (h *hunter) readWhole(c *client, s *stream) error {
	fd, err := h.open(s.name)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	n := c.sizeOfRead() + 32<<10
	for off := int64(0); off < s.size(); off += int64(n) {
		if _, err := h.read(c, fd, s, off, n); err != nil {
			return err
		}
	}
	return nil
}

// workerStream returns the stream of a worker file in an epoch.
func (h *hunter) workerStream(epoch int, r *rand.Rand) *stream {
	n := h.order.deals()[0][1]
	return h.streams[epoch*n+r.IntN(n)]
}

// unmount ends the server. It must leave nothing behind.
func (h *hunter) unmount() {
	h.t.Helper()
	h.server.Cmd.Process.Signal(syscall.SIGTERM)
	if !h.server.Ended(endLimit / 2) {
		h.find("the server does not end: %s", h.server.Log)
		return
	}
	if code := h.server.Cmd.ProcessState.ExitCode(); code != 0 {
		h.find("the server ended with exit code %d: %s", code, h.server.Log)
	}
	if serve.IsMount(h.point) {
		h.find("the mount is left")
	}
	for _, dir := range []string{h.tmp, h.spool} {
		if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
			h.find("files are left: %q", names)
		}
	}
}

// calm waits until the server holds no more than when it was idle.
func (h *hunter) calm(goroutines int) {
	h.t.Helper()
	// Threads of the test itself may be late in closing files.
	deadline := time.Now().Add(endLimit / 3)
	for {
		f, err := figuresOf(filepath.Join(h.point, "status.json"))
		if err != nil {
			h.find("%v", err)
			return
		}
		held, err := serve.FiguresOf(h.server.Cmd.Process.Pid)
		if err != nil {
			h.find("%v", err)
			return
		}
		const most = 300 << 20 // 150 MiB on top of the budget, plus garbage not collected yet
		if f.handles == 0 && f.goroutines <= goroutines+goroutinesOfIdle && held.Descriptors <= 3*shards*h.files()+descriptorsOfServer && (held.MemoryBytes < most || serve.RaceBuilt) {
			return
		}
		if time.Now().After(deadline) {
			h.find("when nobody reads the server holds %d handles, %d goroutines (%d when it was mounted), %d descriptors, %d MiB",
				f.handles, f.goroutines, goroutines, held.Descriptors, held.MemoryBytes>>20)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

const (
	// goroutinesOfIdle are goroutines that stay for a while, or wait for more work: readers of the
	// FUSE device, of the engine and of files, and paused decoders.
	goroutinesOfIdle = 200
	// descriptorsOfServer are descriptors other than those of shards.
	descriptorsOfServer = 64
)

// files returns the number of files of a shard.
func (h *hunter) files() int { return len(h.d.a[0]) }
