package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// An error of any call is returned, or does not matter; afterwards the run continues.
func TestAnyCallMayFail(t *testing.T) {
	for k := 0; ; k++ {
		path := t.TempDir()
		f := &failing{at: k}
		d, err := open(path, games, f)
		if err == nil {
			_, err = d.Take(epochOf(0), textOf(0))
		}
		if f.calls <= k {
			require.NoError(t, err)
			require.Greater(t, k, 8)
			return
		}
		d = opened(t, path)
		latest, err := d.Latest()
		require.NoError(t, err)
		if latest == None {
			_, err = d.Take(epochOf(0), textOf(1))
			require.NoError(t, err)
		}
		e, err := d.Epoch(0)
		require.NoError(t, err)
		_, err = d.Snapshot(e.Snapshot)
		require.NoError(t, err)
	}
}

// failing fails its at-th call.
type failing struct {
	kernel
	at, calls int
}

var errBroken = errors.New("broken")

func (f *failing) fails() error {
	f.calls++
	if f.calls-1 == f.at {
		return errBroken
	}
	return nil
}

func (f *failing) create(dir, pattern string, text []byte) (string, error) {
	if err := f.fails(); err != nil {
		return "", err
	}
	return f.kernel.create(dir, pattern, text)
}

func (f *failing) rename(from, to string) error {
	return errors.Join(f.fails(), f.unlessFailed(func() error { return f.kernel.rename(from, to) }))
}

func (f *failing) link(from, to string) error {
	return errors.Join(f.fails(), f.unlessFailed(func() error { return f.kernel.link(from, to) }))
}

func (f *failing) remove(path string) error {
	return errors.Join(f.fails(), f.unlessFailed(func() error { return f.kernel.remove(path) }))
}

func (f *failing) syncDir(dir string) error {
	return errors.Join(f.fails(), f.unlessFailed(func() error { return f.kernel.syncDir(dir) }))
}

// unlessFailed calls call, unless this is the one that fails.
func (f *failing) unlessFailed(call func() error) error {
	if f.calls-1 == f.at {
		return nil
	}
	return call()
}

// TestChild is not a test: other tests run it as their child process.
func TestChild(t *testing.T) {
	path := os.Getenv("LSIOFS_TEST_RUN")
	if path == "" {
		t.Skip("it is run by other tests, as a process")
	}
	kill, err := strconv.Atoi(os.Getenv("LSIOFS_TEST_KILL"))
	require.NoError(t, err)
	d, err := open(path, games, &killed{at: kill})
	require.NoError(t, err)
	latest, err := d.Latest()
	require.NoError(t, err)
	e, err := d.Take(epochOf(latest+1), textOf(os.Getpid()))
	require.NoError(t, err)
	fmt.Printf("took %d %s\n", e.Epoch, e.Snapshot)
}

// killed ends the process, like kill -9, before its at-th call; -1: never.
type killed struct {
	kernel
	at, calls int
}

func (k *killed) step() {
	if k.calls == k.at {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		time.Sleep(time.Hour)
	}
	k.calls++
}

func (k *killed) create(dir, pattern string, text []byte) (string, error) {
	k.step() // before the file is created, or:
	path, err := k.kernel.create(dir, pattern, text)
	return path, err
}
func (k *killed) rename(from, to string) error { k.step(); return k.kernel.rename(from, to) }
func (k *killed) link(from, to string) error   { k.step(); return k.kernel.link(from, to) }
func (k *killed) remove(path string) error     { k.step(); return k.kernel.remove(path) }
func (k *killed) syncDir(dir string) error     { k.step(); return k.kernel.syncDir(dir) }

func child(path string, kill int) (string, error) {
	c := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	c.Env = append(os.Environ(), "LSIOFS_TEST_RUN="+path, "LSIOFS_TEST_KILL="+strconv.Itoa(kill))
	out, err := c.CombinedOutput()
	return string(out), err
}

// A process that is killed between any two of its calls leaves an epoch that has been started,
// completely, or has not; and the next process continues.
func TestKilledProcessLosesNothingAndStartsNothingTwice(t *testing.T) {
	steps := 0
	for ; ; steps++ {
		path := t.TempDir()
		out, err := child(path, steps)
		d := opened(t, path)
		latest, failed := d.Latest()
		require.NoError(t, failed)
		if err == nil {
			require.Equal(t, uint64(0), latest, out)
			break
		}
		require.ErrorContains(t, err, "signal: killed", out)
		before := map[uint64]Epoch{}
		if latest != None {
			require.Equal(t, uint64(0), latest)
			before[0], failed = d.Epoch(0)
			require.NoError(t, failed)
			_, failed = d.Snapshot(before[0].Snapshot)
			require.NoError(t, failed)
		}
		took, failed := d.Take(epochOf(latest+1), textOf(5))
		require.NoError(t, failed)
		require.Equal(t, latest+1, took.Epoch)
		for n, e := range before {
			there, failed := d.Epoch(n)
			require.NoError(t, failed)
			require.Equal(t, e, there)
		}
	}
	require.Greater(t, steps, 8)
}

// If many processes and goroutines start an epoch at the same time, one wins, and all see the same.
func TestOneOfManyCallersStartsEpoch(t *testing.T) {
	path := t.TempDir()
	const processes, goroutines, epochs = 12, 24, 6
	var all sync.WaitGroup
	outs := make([]string, processes)
	for i := range processes {
		all.Go(func() {
			var err error
			if outs[i], err = child(path, -1); err != nil {
				t.Errorf("%v: %s", err, outs[i])
			}
		})
	}
	all.Wait()
	d := opened(t, path)
	winners := map[string]string{}
	for _, out := range outs {
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) == 3 && words[0] == "took" {
				if other, ok := winners[words[1]]; ok {
					require.Equal(t, other, words[2])
				}
				winners[words[1]] = words[2]
			}
		}
	}
	require.NotEmpty(t, winners)
	latest, err := d.Latest()
	require.NoError(t, err)
	for n := latest + 1; n < latest+1+epochs; n++ {
		took := make([]Epoch, goroutines)
		for i := range goroutines {
			all.Go(func() {
				mine, err := Open(path, games)
				if err == nil {
					took[i], err = mine.Take(epochOf(n), textOf(1000+i))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, e := range took {
			require.Equal(t, took[0], e)
		}
	}
	for _, name := range namesIn(t, path) {
		require.NotContains(t, name, "tmp-")
	}
}
