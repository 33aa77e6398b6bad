package fs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/fs/rings/ringstest"
	"github.com/lsiofs/lsiofs/integration/serve"
)

// mountsDir is where all mounts of the tests are, so that leftover ones are found.
var mountsDir string

// ringed makes all mounts of these tests receive their requests by io_uring, which the kernel must
// then support.
var ringed = os.Getenv("LSIOFS_RINGS") != ""

var discard = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	serve.Main()
	switch os.Getenv(agentEnv) {
	case "agent":
		exitOn(runAgent(os.Stdin, os.Stdout))
	case "server":
		exitOn(runServer(os.Args[1]))
	}
	if ringed {
		if err := ringstest.SwitchOn(); err != nil {
			exitOn(err)
		}
	}
	dir, remove, err := serve.ShortScratch("fs")
	if err != nil {
		exitOn(err)
	}
	if mountsDir, err = filepath.EvalSymlinks(dir); err != nil {
		exitOn(err)
	}
	code := m.Run()
	if err := leaked(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if left := mountsBelow(mountsDir); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "mounts were left behind:", left)
		for _, path := range left {
			_ = unix.Unmount(path, unix.MNT_DETACH)
		}
		code = 1
	}
	remove()
	os.Exit(code)
}

// leaked waits until all goroutines of the tests have ended. One look gives them less than half a
// second, and a busy machine may take longer.
func leaked() (err error) {
	for end := time.Now().Add(callTimeout); time.Now().Before(end); {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func mountsBelow(dir string) (left []string) {
	mounts, err := Mounts()
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Point, dir+"/") {
			left = append(left, m.Point)
		}
	}
	return left
}

// needFUSE skips a test if nothing can be mounted, and fails it in CI.
func needFUSE(t *testing.T) {
	t.Helper()
	if err := checkDevice(false); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// mountless holds the names of the tests that have called mountsNothing.
var mountless sync.Map

// mountsNothing skips a test with LSIOFS_RINGS=1, because it does not depend on how mounts receive
// their requests. A test that calls it and mounts fails without LSIOFS_RINGS.
func mountsNothing(t *testing.T) {
	t.Helper()
	if ringed {
		t.Skip("mounts nothing")
	}
	mountless.Store(t.Name(), true)
}

// newPoint is an empty directory for a mount.
func newPoint(t *testing.T) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	_, wrong := mountless.Load(test)
	require.False(t, wrong, "%s mounts: it must not call mountsNothing", test)
	dir, err := os.MkdirTemp(mountsDir, "m-")
	require.NoError(t, err)
	return dir
}

// mounted is a mount in this process, and a client in another.
type mounted struct {
	*Mount
	*agent
	data *fakeDataset
	dir  string
}

func mount(t *testing.T, workers uint64) *mounted { return mountFake(t, newFakeDataset(workers)) }

func mountFake(t *testing.T, d *fakeDataset) *mounted {
	t.Helper()
	needFUSE(t)
	dir := newPoint(t)
	c := Config{Dataset: d, Rings: ringed, MountPoint: dir, Version: "v0-test", Log: discard}
	m, err := newMount(t.Context(), c, d.set)
	require.NoError(t, err)
	// Longer than any program takes to create a file again that it has unlinked.
	m.tree.hidden.last(callTimeout, callTimeout)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		require.NoError(t, m.Unmount(ctx))
		require.NoError(t, m.Wait())
		require.Zero(t, d.handles(0), "handles of streams were left open")
	})
	return &mounted{Mount: m, agent: newAgent(t), data: d, dir: dir}
}

// last sets for how long a name that is unlinked from now on stays away: for all threads, and for
// the thread that unlinks it.
func (h *hiddenName) last(most, own time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.most, h.mostOwn = most, own
}

func (m *mounted) path(names ...string) string {
	return filepath.Join(append([]string{m.dir}, names...)...)
}

// expect returns what worker w's files must contain.
func (m *mounted) expect(p checkpoint.Position, w, of uint64) [4][]byte {
	m.t.Helper()
	deal := m.data.spec.Deal
	deal.Workers = of
	s, err := m.data.set(m.t.Context(), p.Epoch, p.Done, deal)
	require.NoError(m.t, err)
	return s.(*fakeSet).files(w)
}

// runServer is a mount in a process of its own, which ends when it is unmounted.
func runServer(dir string) error {
	d := newFakeDataset(2)
	m, err := newMount(context.Background(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	if err := m.Wait(); err != nil {
		return err
	}
	return nil
}
