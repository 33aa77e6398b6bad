package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

// mounted is a mount of a dataset, with its model and the position of its worker files.
type mounted struct {
	*serve.Server
	m   *model
	tmp string // the server's temporary directory, which must be empty at the end
	// overDead: a killed server's mount was in its place when it started
	overDead bool

	// mu is held for writing while a position is restored, and for reading while a worker file is
	// opened, so it is known which position was opened.
	mu  sync.RWMutex
	now view

	done tally
}

// view is one position of the worker files, from one restore to the next.
type view struct {
	number int
	position
}

// tally counts what was done.
type tally struct {
	restores, saves, refusals, openings, reads, bytes, stale, signals atomic.Int64
}

func (t *tally) String() string {
	return fmt.Sprintf("%d openings, %d reads, %d MiB compared, %d restores, %d saves, %d refused documents, %d stale handles, %d signals",
		t.openings.Load(), t.reads.Load(), t.bytes.Load()>>20, t.restores.Load(), t.saves.Load(), t.refusals.Load(), t.stale.Load(), t.signals.Load())
}

// startServer starts `lsiofs mount`, which ends with the test at the latest.
func startServer(t *testing.T, m *model, dir string, more ...string) *mounted {
	t.Helper()
	s := &mounted{m: m, tmp: t.TempDir(), overDead: serve.IsMount(dir)}
	args := append([]string{"mount", m.d.dir, dir, "--log-level", "error"}, m.d.flags...)
	cmd := exec.Command(lsiofs, append(append(args, m.s.flags()...), more...)...)
	cmd.Env = environmentIn(s.tmp)
	var err error
	s.Server, err = serve.Start(cmd, dir)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !s.Ended(0) {
			s.Cmd.Process.Kill()
			<-s.Exited
		}
		if serve.IsMount(dir) {
			serve.Detach(dir)
		}
	})
	return s
}

// end unmounts, and fails the test if that goes wrong. A container that was started while the mount
// existed has a copy of it, which keeps the server alive; that is logged, but is not a failure.
func (s *mounted) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	if !s.Ended(6 * time.Second) { // there are no readers, so it has nothing to wait for
		if elsewhere := serve.SeenBy(s.Dir); len(elsewhere) > 0 {
			s.Cmd.Process.Signal(syscall.SIGQUIT)
			s.Ended(endLimit)
			t.Logf("the server of %s did not end, since others that were started meanwhile hold its mount: %q", s.m.d.name, elsewhere)
			return
		}
	}
	// It may be slow. If it had waited for readers, its exit code would show it.
	require.True(t, s.Ended(endLimit), "the server of %s does not end, and has no readers: %s", s.m.d.name, s.Log)
	require.Zero(t, s.Cmd.ProcessState.ExitCode(), "exit code of the server of %s: %s", s.m.d.name, s.Log)
	require.False(t, serve.IsMount(s.Dir), "%s is still a mount", s.Dir)
	requireEmpty(t, s.tmp)
	require.NotContains(t, s.Log.String(), "DATA RACE")
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, names, "files that were left")
}

func (s *mounted) path(format string, args ...any) string {
	return filepath.Join(s.Dir, fmt.Sprintf(format, args...))
}

// openWorker opens worker w's file at the present position.
func (s *mounted) openWorker(w int) (*os.File, *stream, view, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	want, err := s.m.stream(s.now.position, w, s.m.s.number("workers"))
	if err != nil {
		return nil, nil, view{}, err
	}
	f, err := os.Open(s.path("worker-%d%s", w, s.m.d.ext))
	s.done.openings.Add(1)
	return f, want, s.now, err
}

// openSome opens any file of any epoch, or a worker file; v is the view that the file goes stale
// with, nil if none.
func (s *mounted) openSome(r *rand.Rand) (*os.File, readable, *view, error) {
	if r.IntN(3) == 0 {
		f, want, v, err := s.openWorker(r.IntN(s.m.s.number("workers")))
		return f, want, &v, err
	}
	workers := 1 + r.IntN(9)
	w, p := r.IntN(workers), position{epoch: uint64(r.IntN(epochs))}
	dir := fmt.Sprintf("epoch-%d", p.epoch)
	if r.IntN(3) == 0 {
		from := r.IntN(len(s.m.d.records) + 1)
		p.done = []entry{{Batch: 1, Consumed: []int{from}}}
		dir += fmt.Sprintf("/from-%d", from)
	}
	want, err := s.m.stream(p, w, workers)
	if err != nil {
		return nil, nil, nil, err
	}
	ext := []string{s.m.d.ext, s.m.d.ext, s.m.d.ext, ".ids", ".offsets"}[r.IntN(5)]
	f, err := os.Open(s.path("%s/worker-%d-of-%d%s", dir, w, workers, ext))
	s.done.openings.Add(1)
	if ext != s.m.d.ext {
		return f, flat(want.beside(ext)), nil, err
	}
	return f, want, nil, err
}

// epochs is how many epochs are read.
const epochs = 4

// isStale reports whether err is what a handle of a view must return after a restore has ended the
// view.
func (s *mounted) isStale(err error, v *view) bool {
	if v == nil || !errors.Is(err, syscall.ESTALE) && !errors.Is(err, syscall.EFAULT) {
		return false
	}
	s.mu.RLock() // waits for a restore under way
	defer s.mu.RUnlock()
	if s.now.number == v.number {
		return false
	}
	s.done.stale.Add(1)
	return true
}

// document is a checkpoint as user programs see it.
type document struct {
	Version int             `json:"version"`
	Dataset string          `json:"dataset"`
	Order   json.RawMessage `json:"order"`
	Epoch   uint64          `json:"epoch"`
	Done    []entry         `json:"done"`
}

func parse(b []byte) (d document, err error) {
	err = json.Unmarshal(b, &d)
	return d, err
}

func (d document) position() position { return position{d.Epoch, d.Done} }

// save reads the checkpoint.
func (s *mounted) save() ([]byte, error) {
	s.done.saves.Add(1)
	return os.ReadFile(s.path("checkpoint"))
}

// restore writes a document that must be accepted, and continues at p.
func (s *mounted) restore(doc []byte, p position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := writeThrough(s.path("checkpoint"), doc); err != nil {
		return fmt.Errorf("restore %.200s: %w", doc, err)
	}
	s.now = view{s.now.number + 1, p}
	s.done.restores.Add(1)
	return nil
}

// writeThrough writes a document like a careful program, and returns the errors of write and close.
func writeThrough(path string, doc []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(doc)
	return errors.Join(err, f.Close())
}
