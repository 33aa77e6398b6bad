package fs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// interruptedBy is a request of a thread that has been interrupted.
func interruptedBy(t *testing.T, s *interrupts, thread uint32) *patience {
	t.Helper()
	cancel := make(chan struct{})
	close(cancel)
	p := patient(&fuse.Context{Caller: fuse.Caller{Pid: thread}, Cancel: cancel}, s, nil, nil)
	t.Cleanup(p.finish)
	return p
}

func TestRequestOfInvisibleClientContinuesForMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		s := &interrupts{group: &group}
		p := interruptedBy(t, s, 0)
		done, began := p.Done(), time.Now()
		time.Sleep(unseenGrace - lookAgain)
		require.NoError(t, p.Err())
		<-done
		require.ErrorIs(t, p.Err(), context.Canceled)
		require.InDelta(t, unseenGrace, time.Since(began), float64(lookAgain))
	})
}

// With rings, the kernel sends no interrupt for a request that is still waiting for a thread.
func TestWaitingClientsAreCheckedIfInterruptsMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		s := &interrupts{group: &group, unsure: true}
		child := exec.Command("sleep", "1000")
		require.NoError(t, child.Start())
		killed := patient(&fuse.Context{Caller: fuse.Caller{Pid: uint32(child.Process.Pid)}}, s, nil, nil)
		unknown := patient(&fuse.Context{}, s, nil, nil)
		unknown.Done()
		done := killed.Done()
		time.Sleep(time.Second)
		require.NoError(t, killed.Err(), "it lives")
		require.NoError(t, child.Process.Kill())
		<-done
		require.ErrorIs(t, killed.Err(), context.Canceled)
		time.Sleep(10 * unseenGrace)
		require.NoError(t, unknown.Err(), "nobody has interrupted it")
		killed.finish()
		unknown.finish()
		group.Wait()
		_ = child.Wait()
	})
}

func TestOneGoroutineChecksAllInterruptedClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		s := &interrupts{group: &group}
		for range 3 {
			var all []*patience
			for range 100 {
				cancel := make(chan struct{})
				close(cancel)
				all = append(all, patient(&fuse.Context{Cancel: cancel}, s, nil, nil))
				all[len(all)-1].Done()
			}
			synctest.Wait()
			require.Len(t, s.requests, 100)
			stop := s.stop
			time.Sleep(10 * lookAgain)
			require.Equal(t, stop, s.stop, "it is the same one")
			for _, p := range all {
				p.finish()
			}
			require.Empty(t, s.requests)
			group.Wait() // at once, the clock stands still
		}
	})
}

func TestRequestIsAbandonedIfClientIsGoneOrPIDReused(t *testing.T) {
	c := client{thread: uint32(os.Getpid())}
	require.Equal(t, unseen, c.look(), "it was never met")
	c.meet()
	require.Equal(t, lives, c.look())
	c.started--
	require.Equal(t, dies, c.look(), "a thread that began earlier had this number")

	sleeper := exec.Command("sleep", "1000")
	require.NoError(t, sleeper.Start())
	c = client{thread: uint32(sleeper.Process.Pid)}
	c.meet()
	require.Equal(t, lives, c.look())
	require.NoError(t, sleeper.Process.Kill())
	require.Eventually(t, func() bool { return c.look() == dies }, callTimeout, time.Millisecond, "a zombie")
	require.Error(t, sleeper.Wait())
	require.Equal(t, dies, c.look(), "gone")
	c = client{thread: 1<<31 - 1}
	c.meet()
	require.Equal(t, unseen, c.look(), "what /proc does not show at first is hidden, not gone")
}

func TestClientFateDependsOnItsSignals(t *testing.T) {
	const quit, usr1, term, child, stop = "0000000000000004", "0000000000000200", "0000000000004000", "0000000000010000", "0000000000080000"
	for _, c := range []struct {
		name, status string
		want         fate
	}{
		{"nothing is pending", "State:\tD (disk sleep)\nSigPnd:\t0000000000000000\n", lives},
		{"SIGKILL of its own", "SigPnd:\t0000000000000100\n", dies},
		{"SIGKILL of its process, traced", "TracerPid:\t7\nShdPnd:\t0000000000000100\n", dies},
		{"SIGQUIT", "ShdPnd:\t" + quit + "\nSigCgt:\t" + term, dies},
		{"SIGQUIT with a handler", "ShdPnd:\t" + quit + "\nSigCgt:\t" + quit, lives},
		{"SIGQUIT, which is ignored", "SigPnd:\t" + quit + "\nSigIgn:\t" + quit, lives},
		{"SIGQUIT, which is blocked", "SigPnd:\t" + quit + "\nSigBlk:\t" + quit, lives},
		{"SIGQUIT, which a tracer sees first", "TracerPid:\t7\nSigPnd:\t" + quit, lives},
		{"SIGUSR1 without a handler", "SigPnd:\t" + usr1 + "\n", dies},
		{"the end of a child, without a handler", "ShdPnd:\t" + child + "\n", lives},
		{"a stop from the terminal", "ShdPnd:\t" + stop + "\n", lives},
		{"a zombie", "State:\tZ (zombie)\n", dies},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, fateOf([]byte(c.status))) })
	}
}

// umount -f ends the connection: the kernel has answered the clients itself, and no signal reports
// it.
func TestRequestsEndWhenKernelAbortsConnection(t *testing.T) {
	needFUSE(t)
	if os.Geteuid() != 0 {
		t.Skip("umount -f needs root")
	}
	dir, d := newPoint(t), newFakeDataset(1)
	entered := make(chan struct{}, 1)
	d.setFault(func(ctx context.Context, _ uint64, _ int64) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, d.set)
	require.NoError(t, err)
	a := newAgent(t)
	fd := a.open(m.tree.mountPoint+"/worker-0.rec", unix.O_RDONLY)
	a.start(call{Op: "pread", FD: fd, N: 10})
	<-entered
	_ = unix.Unmount(dir, unix.MNT_FORCE) // EBUSY, but the connection has ended
	require.Contains(t, []syscall.Errno{syscall.ECONNABORTED, syscall.ENOTCONN}, a.wait().Errno)
	require.NoError(t, m.Unmount(t.Context()))
	require.NoError(t, m.Wait())
}

// The order of the position that is restored may take long to compute.
func TestProcessWaitingForRestoreOfAnotherCanBeKilled(t *testing.T) {
	needFUSE(t)
	dir, d := newPoint(t), newFakeDataset(1)
	entered := make(chan struct{}, 1)
	hangs := func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (fileSet, error) {
		if epoch == 0 {
			return d.set(ctx, epoch, done, deal)
		}
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	m, err := newMount(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: dir}, hangs)
	require.NoError(t, err)
	writes := func() (*agent, int) {
		a := newAgent(t)
		fd := a.open(dir+"/checkpoint", unix.O_WRONLY)
		a.must(call{Op: "write", FD: fd, Data: []byte(`{"epoch": 1}`)})
		return a, fd
	}
	first, firstFD := writes()
	second, secondFD := writes()
	first.start(call{Op: "close", FD: firstFD})
	<-entered
	second.start(call{Op: "close", FD: secondFD})
	require.Eventually(t, func() bool { return inClose(second.cmd.Process.Pid) }, callTimeout, time.Millisecond)
	for _, a := range []*agent{second, first} {
		require.NoError(t, a.cmd.Process.Kill())
		_, err := a.cmd.Process.Wait()
		require.NoError(t, err)
	}
	require.NoError(t, m.Unmount(t.Context()))
}

// inClose reports whether a thread of a process is in that system call.
func inClose(pid int) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(text), fmt.Sprint(unix.SYS_CLOSE, " ")) {
			return true
		}
	}
	return false
}

func TestThreadsAreIdentifiedByTheirProcess(t *testing.T) {
	for range 4 {
		done := make(chan uint32)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			done <- processOf(uint32(unix.Gettid()))
		}()
		require.EqualValues(t, os.Getpid(), <-done)
	}
	require.EqualValues(t, 1<<31-1, processOf(1<<31-1), "no such thread")
}
