package fs

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// fading is a set whose reads from a place on answer with memory that the kernel can't
// read, as a mapped page that is gone and can't be read again.
type fading struct {
	fileSet
	from int64
	page []byte
}

func (s fading) Open(w uint64, k stream.Kind) fileHandle {
	return fadingHandle{s.fileSet.Open(w, k), s}
}

type fadingHandle struct {
	fileHandle
	set fading
}

func (h fadingHandle) ReadAt(ctx context.Context, r *stream.Reply, off int64, n int) error {
	if off < h.set.from {
		return h.fileHandle.ReadAt(ctx, r, off, n)
	}
	r.Slices = append(r.Slices, h.set.page[:n])
	return nil
}

func TestAReplyThatTheKernelCanNotCopyIsAFaultAndMovesNoMark(t *testing.T) {
	needFUSE(t)
	page, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(page)) }()
	d := newFakeDataset(1)
	open := func(ctx context.Context, epoch uint64, done []order.Done, deal spec.Deal) (fileSet, error) {
		s, err := d.set(ctx, epoch, done, deal)
		return fading{s, 5000, page}, err
	}
	dir := newPoint(t)
	mnt, err := newMount(t.Context(), Config{Dataset: d, MountPoint: dir}, open)
	require.NoError(t, err)
	m := &mounted{Mount: mnt, agent: newAgent(t), data: d, dir: dir}
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	require.Len(t, m.must(call{Op: "pread", FD: fd, N: 4000}).Data, 4000)
	before := m.consumed()
	require.NotZero(t, before[0])
	for range 3 {
		require.Equal(t, syscall.EIO, m.do(call{Op: "pread", FD: fd, Off: 5000, N: 4096}).Errno)
	}
	// The reader has its error a moment before the server knows.
	var status string
	require.Eventually(t, func() bool {
		status = m.read(m.path("status"))
		return strings.Contains(status, "(3 times)")
	}, callTimeout, time.Millisecond)
	require.Contains(t, status, "worker-0.rec: bytes [5000, 9096): a page of a mapped shard was gone")
	require.Equal(t, before, m.consumed())
	require.Equal(t, string(m.expect(checkpoint.Position{}, 0, 1)[0][4000:5000]), string(m.must(call{Op: "pread", FD: fd, Off: 4000, N: 1000}).Data))
	require.Greater(t, m.consumed()[0], before[0])
	m.must(call{Op: "close", FD: fd})
	require.NoError(t, m.Unmount(t.Context()))
}
