package fs

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// status is the mount's status.json.
func (m *mounted) status() (r statusReport) {
	m.t.Helper()
	require.NoError(m.t, json.Unmarshal([]byte(m.read(m.path("status.json"))), &r))
	return r
}

func TestStatusShowsTheStreamsBelowAnEpochThatAreReadAndTheirPlaceInIt(t *testing.T) {
	m := mount(t, 2)
	require.Nil(t, m.status().Reading, "nothing is read yet")
	first := m.open(m.path("epoch-3", "from-500", "worker-1-of-2.rec"), unix.O_RDONLY)
	require.Nil(t, m.status().Reading, "it was opened, not read")
	second := m.open(m.path("epoch-3", "from-500", "worker-0-of-2.rec"), unix.O_RDONLY)
	ids := m.open(m.path("epoch-3", "from-500", "worker-0-of-2.ids"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: first, Off: 100, N: 300})
	m.must(call{Op: "pread", FD: first, N: 20}) // a look back
	m.must(call{Op: "pread", FD: second, N: 50})
	m.must(call{Op: "pread", FD: ids, N: 16})

	r := m.status().Reading
	require.NotNil(t, r)
	require.Len(t, r.Streams, 2)
	a, b := r.Streams[1], r.Streams[0]
	require.Equal(t, "epoch-3/from-500/worker-1-of-2.rec", a.Name)
	require.Equal(t, []uint64{3, 500, 1, 2}, []uint64{a.Epoch, a.From, a.Worker, a.Workers})
	require.EqualValues(t, 400, a.ReadBytes, "the furthest end")
	require.Greater(t, a.SizeBytes, int64(400))
	require.InDelta(t, 0.5+0.5*400/float64(a.SizeBytes), a.EpochShare, 1e-9)
	require.True(t, a.Open)
	require.EqualValues(t, m.cmd.Process.Pid, a.ReaderPID)
	require.Positive(t, a.BytesPerSecond)
	require.Equal(t, "epoch-3/from-500/worker-0-of-2.rec", b.Name, "the one that was read last comes first")
	require.EqualValues(t, 50, b.ReadBytes)
	require.Equal(t, "epoch-3/from-500", r.Directory)
	require.EqualValues(t, 3, r.Epoch)
	require.InDelta(t, 0.5+0.5*450/float64(a.SizeBytes+b.SizeBytes), r.EpochShare, 1e-9)
	require.True(t, r.Latest)

	text := m.read(m.path("status"))
	require.Contains(t, text, "in progress: epoch 3, 5")
	require.Contains(t, text, "epoch-3/from-500/worker-1-of-2.rec")
	require.Regexp(t, fmt.Sprintf("400 of %d bytes, .*/s, read by process %d", a.SizeBytes, m.cmd.Process.Pid), text)

	// A worker file that is read later is what is being read.
	fd := m.open(m.path("worker-0.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: 50})
	require.False(t, m.status().Reading.Latest)
	m.must(call{Op: "pread", FD: second, Off: 50, N: 50})
	require.True(t, m.status().Reading.Latest)
}

func TestFinishedStreamCountsUntilAnotherEpochIsRead(t *testing.T) {
	m := mount(t, 2)
	size := len(m.read(m.path("epoch-0", "worker-0-of-2.rec"))) // opened, read, closed
	fd := m.open(m.path("epoch-0", "worker-1-of-2.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: 10})
	var r *readingReport
	// The kernel notifies the server a moment later that a file was closed.
	require.Eventually(t, func() bool { r = m.status().Reading; return !r.Streams[1].Open }, callTimeout, hiddenFor/10)
	require.Equal(t, "epoch-0/worker-0-of-2.rec", r.Streams[1].Name)
	require.EqualValues(t, size, r.Streams[1].ReadBytes)
	require.Equal(t, 1.0, r.Streams[1].EpochShare)
	require.InDelta(t, 0.5, r.EpochShare, 0.05)

	fd = m.open(m.path("epoch-1", "worker-0-of-2.rec"), unix.O_RDONLY)
	m.must(call{Op: "pread", FD: fd, N: 10})
	r = m.status().Reading
	require.EqualValues(t, 1, r.Epoch)
	require.Len(t, r.Streams, 2, "that of epoch 1, and that of epoch 0 which is open")
}

func TestOnlyMostRecentlyReadStreamsAreShownAndOthersCounted(t *testing.T) {
	m := mount(t, 1)
	for w := range 20 {
		fd := m.open(m.path("epoch-0", fmt.Sprintf("worker-%d-of-20.rec", w)), unix.O_RDONLY)
		m.must(call{Op: "pread", FD: fd, N: 10})
	}
	r := m.status().Reading
	require.Len(t, r.Streams, readingShown)
	require.Equal(t, "epoch-0/worker-19-of-20.rec", r.Streams[0].Name)
	require.EqualValues(t, 4, r.More)
	require.Contains(t, m.read(m.path("status")), "… and 4 more")
}

func TestClosedStreamsAreRetainedUpToLimit(t *testing.T) {
	var s handles
	for k := range int64(2 * keptWorkers) {
		h := &streamHandle{node: &streamNode{path: fmt.Sprint(k)}}
		h.began.Store(k + 1)
		h.furthest.Store(1)
		s.add(h)
		s.remove(h)
	}
	require.Len(t, s.left, keptWorkers)
	require.Contains(t, s.left, fmt.Sprint(2*keptWorkers-1), "the newest")
}

func TestReadersAreOpenHandlesAndRepeatedlyOpenedWorkers(t *testing.T) {
	var s handles
	open := func(worker uint64, began int64) *streamHandle {
		h := &streamHandle{node: &streamNode{name: fileName{worker: worker}}}
		h.began.Store(began)
		s.add(h)
		return h
	}
	count := func(now int64, recent, active int) {
		t.Helper()
		r, a := s.readers(now)
		require.Equal(t, recent, r, "recent")
		require.Equal(t, active, a, "active")
	}
	open(7, 0) // has not read
	count(100*second, 0, 0)
	first := open(0, 100*second)
	open(0, 100*second)
	count(100*second, 2, 2)
	count(150*second, 2, 0)
	first.pending.Store(1)
	count(300*second, 1, 1) // it waits
	for k := range int64(5) {
		s.remove(open(1, (301+k)*second)) // one epoch after another
	}
	count(305*second, 2, 2)
	count(366*second, 1, 1)
	require.Empty(t, s.read.last, "what is older than a minute is forgotten")
}
