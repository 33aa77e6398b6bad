package fs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestReadErrorsAreEIOAndNamed(t *testing.T) {
	m := mount(t, 2)
	fault := fmt.Errorf("shard-007.tar: bytes [512, 1024): %w", read.ErrTimeout)
	m.data.setFault(func(_ context.Context, w uint64, off int64) error {
		if w == 0 && off < 1000 {
			return fault
		}
		return nil
	})
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	for range 20 {
		require.Equal(t, syscall.EIO, m.do(call{Op: "pread", FD: fd, N: 10}).Errno)
	}
	m.must(call{Op: "pread", FD: fd, Off: 1000, N: 10})
	m.read(m.path("worker-1.rec"))
	require.Equal(t, []uint64{0, 500}, m.consumed(), "what failed was not delivered")
	status := m.read(m.path("status"))
	require.Contains(t, status, "worker-0.rec: shard-007.tar: bytes [512, 1024): ")
	require.Contains(t, status, "last errors, of 20:")
	require.Equal(t, 1, strings.Count(status, "worker-0.rec: shard-007.tar"), "once")
	require.Contains(t, status, " (20 times)\n")
	m.data.setFault(nil)
	require.Equal(t, string(m.expect(checkpoint.Position{}, 0, 2)[stream.Data]), m.read(m.path("worker-0.rec")), "an error does not stick")
}

func TestShortReadIsAnErrorAndNotEOF(t *testing.T) {
	h := &streamHandle{
		t:    &tree{meter: new(meter.Meter)},
		node: &streamNode{sizeBytes: 1000, path: "worker-0.rec"},
		file: shortHandle{},
	}
	h.t.problems.log = discard
	_, e := h.Read(t.Context(), make([]byte, 500), 0)
	require.Equal(t, syscall.EIO, e)
}

type shortHandle struct{}

func (shortHandle) ReadAt(_ context.Context, r *stream.Reply, _ int64, n int) error {
	r.Slices = append(r.Slices, make([]byte, n-1))
	return nil
}
func (shortHandle) BeforeRecords() int64 { return 0 }
func (shortHandle) Close()               {}

// A reader that is interrupted all the time, like programs with timers, gets its bytes; one that is
// killed is gone.
func TestInterruptedReaders(t *testing.T) {
	m := mount(t, 1)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	m.data.setFault(func(ctx context.Context, _ uint64, _ int64) error {
		entered <- struct{}{}
		<-release
		return ctx.Err() // not at once, so that the interruption may or may not have come
	})
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	m.start(call{Op: "pread", FD: fd, N: 10})
	<-entered
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGURG))
	close(release)
	require.Equal(t, string(m.expect(checkpoint.Position{}, 0, 1)[0][:10]), string(m.wait().Data))

	m.data.setFault(func(ctx context.Context, _ uint64, _ int64) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	victim := newAgent(t)
	fd = victim.open(m.path("worker-0.rec"), unix.O_RDONLY)
	victim.start(call{Op: "pread", FD: fd, N: 10})
	<-entered
	require.NoError(t, victim.cmd.Process.Kill())
	_, err := victim.cmd.Process.Wait()
	require.NoError(t, err, "a reader that waits can be killed")
	m.data.setFault(nil)
	m.read(m.path("worker-0.rec"))
}

func TestPatience(t *testing.T) {
	var group sync.WaitGroup
	defer group.Wait()
	on := func(ctx context.Context, retired, ending <-chan struct{}) *patience {
		return patient(ctx, &interrupts{group: &group}, retired, ending)
	}
	t.Run("nothing is started for a request that nobody waits on", func(t *testing.T) {
		p := on(t.Context(), nil, nil)
		require.NoError(t, p.Err())
		require.Nil(t, p.done)
		p.finish()
	})
	t.Run("asking without waiting sees the end too", func(t *testing.T) {
		ended := make(chan struct{})
		close(ended)
		p := on(t.Context(), nil, ended)
		defer p.finish()
		require.Eventually(t, func() bool { return p.Err() != nil }, callTimeout, time.Millisecond)
	})
	t.Run("it ends when its view is retired", func(t *testing.T) {
		retired := make(chan struct{})
		p := on(t.Context(), retired, nil)
		defer p.finish()
		done := p.Done()
		close(retired)
		<-done
		require.ErrorIs(t, p.Err(), context.Canceled)
	})
	t.Run("it ends when the mount does", func(t *testing.T) {
		ending := make(chan struct{})
		p := on(t.Context(), nil, ending)
		defer p.finish()
		done := p.Done()
		close(ending)
		<-done
	})
	t.Run("it does not end when the request is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p := on(ctx, nil, nil)
		done := p.Done()
		p.finish()
		select {
		case <-done:
			t.Fatal("ended")
		default:
		}
	})
}

func TestErrno(t *testing.T) {
	p := &problems{log: discard}
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{fmt.Errorf("read: %w", context.Canceled), syscall.EINTR},
		{errStale, syscall.ESTALE},
		{fmt.Errorf("x: %w", read.ErrTimeout), syscall.EIO},
		{context.DeadlineExceeded, syscall.EIO},
		{errors.New("whatever"), syscall.EIO},
	} {
		require.Equal(t, c.want, p.errno("f", c.err), "%v", c.err)
	}
	_, all := p.snapshot()
	require.EqualValues(t, 3, all, "only what became EIO is a problem")
	for _, c := range []struct {
		err            error
		write, renamed syscall.Errno
	}{
		{nil, 0, 0},
		{&checkpoint.Refusal{Reason: "no"}, syscall.EINVAL, syscall.EBADMSG},
		{checkpoint.ErrIncomplete, syscall.EINVAL, syscall.EBADMSG},
		{fmt.Errorf("x: %w", checkpoint.ErrTooLarge), syscall.EFBIG, syscall.EFBIG},
		{errNoSpace, syscall.ENOSPC, syscall.ENOSPC},
		{context.Canceled, syscall.EINTR, syscall.EINTR},
	} {
		require.Equal(t, c.write, restoreErrno(c.err), "%v", c.err)
		require.Equal(t, c.renamed, renameErrno(c.err), "%v", c.err)
	}
}
