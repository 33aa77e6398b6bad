package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// TestChild is not a test: other tests run it as their child process. It starts epochs up to a
// number, and prints the result.
func TestChild(t *testing.T) {
	dirs := os.Getenv("LSIOFS_TEST_PLACE")
	if dirs == "" {
		t.Skip("it is run by other tests, as a process")
	}
	p := strings.Split(dirs, "\n")
	upTo, err := strconv.ParseUint(os.Getenv("LSIOFS_TEST_EPOCHS"), 10, 64)
	require.NoError(t, err)
	n := open(t, place{p[0], p[1], p[2]}, window(t, os.Getenv("LSIOFS_TEST_WINDOW")))
	require.NoError(t, n.Wait(context.Background(), nil))
	for epoch := range upTo {
		require.Eventually(t, func() bool { // a process that starts late finds files settled later than others
			c, _, err := n.Catalog(context.Background(), epoch, true)
			if errors.Is(err, growing.ErrNotYet) {
				return false
			}
			require.NoError(t, err)
			return c.Close() == nil
		}, patience, 20*time.Millisecond)
		e, _ := n.taken(epoch)
		fmt.Printf("got %d %s %s\n", e.Epoch, e.Snapshot, e.By)
	}
}

func child(p place, epochs int, window string) (*exec.Cmd, *bytes.Buffer) {
	c := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	c.Env = append(os.Environ(), "LSIOFS_TEST_PLACE="+p.data+"\n"+p.index+"\n"+p.run,
		"LSIOFS_TEST_EPOCHS="+strconv.Itoa(epochs), "LSIOFS_TEST_WINDOW="+window, "GOMAXPROCS=1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	return c, &out
}

// Processes that would choose different shards start an epoch at the same time.
func TestOneOfTwoHundredProcessesStartsEpoch(t *testing.T) {
	processes := 200
	if testing.Short() {
		processes = 20
	}
	p := newPlace(t)
	p.put(t, 3, numbered("#.txt", 0, 9)...)
	indexes := t.TempDir()
	outs := make([]*bytes.Buffer, processes)
	var all sync.WaitGroup
	for i := range processes {
		mine := p
		mine.index = filepath.Join(indexes, strconv.Itoa(i%50)) // some share one
		c, out := child(mine, 2, fmt.Sprintf("%dshards", 1+i%9))
		outs[i] = out
		require.NoError(t, c.Start())
		all.Go(func() {
			if err := c.Wait(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	d, err := run.Read(p.run)
	require.NoError(t, err)
	for epoch := range uint64(2) {
		e, err := d.Epoch(epoch)
		require.NoError(t, err)
		want := fmt.Sprintf("got %d %s %s\n", epoch, e.Snapshot, e.By)
		for _, out := range outs {
			require.Contains(t, out.String(), want)
		}
	}
	latest, err := d.Latest()
	require.NoError(t, err)
	require.EqualValues(t, 1, latest)
	entries, err := os.ReadDir(p.run)
	require.NoError(t, err)
	for _, e := range entries {
		require.NotContains(t, e.Name(), "tmp-")
	}
}

// However a process is killed while it starts epochs, the ones it started stay unchanged, and the
// next process continues.
func TestKilledSnapshottersLoseNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(serve.Seed(t), 0))
	p := newPlace(t)
	p.put(t, 3, numbered("#.txt", 0, 30)...)
	open(t, p).eventually(numbered("#.txt", 0, 30)...) // so that the others find it indexed
	before := map[uint64]run.Epoch{}
	for round := range 12 {
		c, out := child(p, 20*(round+1), fmt.Sprintf("%dshards", 1+round))
		require.NoError(t, c.Start())
		// Once it has begun to start epochs, it is killed at a random time.
		latest := uint64(len(before))
		require.Eventually(t, func() bool {
			_, err := os.Stat(filepath.Join(p.run, fmt.Sprintf("epoch-%d", latest)))
			return err == nil
		}, patience, time.Millisecond, "%s", out)
		for range r.IntN(200_000) { // a while
			_ = time.Now()
		}
		_ = c.Process.Kill()
		_ = c.Wait()
		d, err := run.Read(p.run)
		require.NoError(t, err)
		now, err := d.Latest()
		require.NoError(t, err)
		require.GreaterOrEqual(t, now, latest)
		for epoch := range now + 1 {
			e, err := d.Epoch(epoch)
			require.NoError(t, err)
			if had, ok := before[epoch]; ok {
				require.Equal(t, had, e)
			}
			before[epoch] = e
			_, err = d.Snapshot(e.Snapshot)
			require.NoError(t, err)
		}
	}
	n := open(t, p)
	for epoch := range uint64(len(before)) {
		e, _ := n.taken(epoch)
		require.Equal(t, before[epoch], e)
	}
	n.taken(uint64(len(before)))
}

// Many callers request the same epoch from one snapshotter, and some of them give up.
func TestConcurrentCallersShareEpoch(t *testing.T) {
	n := open(t, newPlace(t))
	n.put(t, 3, numbered("#.txt", 0, 5)...)
	n.eventually(numbered("#.txt", 0, 5)...)
	for epoch := range uint64(5) {
		var all sync.WaitGroup
		got := make([]run.Epoch, 20)
		for i := range got {
			all.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%4 == 3 {
					cancel()
				}
				c, e, err := n.Catalog(ctx, epoch, true)
				if err == nil {
					got[i] = e
					err = c.Close()
				}
				if i%4 != 3 && err != nil {
					t.Error(err)
				}
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, growing.ErrNotYet) {
					t.Error(err)
				}
				_ = n.Status()
			})
		}
		all.Wait()
		for i, e := range got {
			if i%4 != 3 {
				require.Equal(t, got[0], e)
			}
		}
	}
}
