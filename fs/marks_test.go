package fs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// reported is worker 0's file in status.json.
func (m *mounted) reported() fileReport {
	m.t.Helper()
	var r statusReport
	require.NoError(m.t, json.Unmarshal([]byte(m.read(m.path("status.json"))), &r))
	return r.Files[0]
}

// ends returns where each record of worker 0 begins, followed by the end of the last one.
func (m *mounted) ends() []int64 {
	offsets := m.expect(checkpoint.Position{}, 0, 1)[stream.Offsets]
	ends := make([]int64, len(offsets)/8)
	for i := range ends {
		ends[i] = int64(binary.LittleEndian.Uint64(offsets[8*i:]))
	}
	return ends
}

func TestLooksAtAWorkerFileBeforeDuringAndAfterTheTrainingDoNotMoveItsCheckpoint(t *testing.T) {
	m := mount(t, 1)
	path, ends := m.path("worker-0.rec"), m.ends()
	look := func() {
		t.Helper()
		out, code := run(t, "/", "md5sum", path)
		require.Zero(t, code, out)
	}
	look()
	require.Equal(t, []uint64{1000}, m.consumed(), "for all that is known, md5sum trains")
	require.Contains(t, m.read(m.path("status")), "(md5sum)")

	training := newAgent(t)
	fd := training.open(path, unix.O_RDONLY)
	training.must(call{Op: "pread", FD: fd, N: int(ends[100])})
	require.Equal(t, []uint64{100}, m.consumed())
	f := m.reported()
	require.EqualValues(t, training.cmd.Process.Pid, f.ReaderPID)
	require.EqualValues(t, []any{ends[100], ends[1000], uint64(1000), uint64(100)},
		[]any{f.DeliveredBytes, f.FurthestBytes, f.FurthestRecords, f.Reader.LastReadRecords})
	require.Regexp(t, fmt.Sprintf(`worker-0\.rec .* 100 records, read by process %d \(.*\), behind an earlier reader, which got 1,?000 records; its last read returned 100 records`,
		training.cmd.Process.Pid), m.read(m.path("status")))

	look()
	training.must(call{Op: "pread", FD: fd, Off: ends[100], N: int(ends[110] - ends[100])})
	require.Equal(t, []uint64{110}, m.consumed(), "while the training has the file open")
	require.Regexp(t, `its last read returned 10 records`, m.read(m.path("status")))

	// A program that looks and stays is behind, or further, when the training ends.
	behind, further := m.open(path, unix.O_RDONLY), m.open(path, unix.O_RDONLY)
	m.must(call{Op: "pread", FD: behind, N: int(ends[10])})
	m.must(call{Op: "pread", FD: further, N: int(ends[200])})
	require.Equal(t, []uint64{110}, m.consumed())
	require.Contains(t, m.read(m.path("status")), fmt.Sprintf("has read to byte %d, which the checkpoint does not count", ends[200]))
	training.must(call{Op: "close", FD: fd})
	require.Equal(t, []uint64{1000}, m.consumed(), "md5sum came further, and nobody reads")
	require.Contains(t, m.read(m.path("status")), fmt.Sprintf("only got to byte %d, but the checkpoint counts an earlier one", ends[110]))
}

func TestReaderFurtherAheadDoesNotMoveMarkAfterTrainingCloses(t *testing.T) {
	m := mount(t, 1)
	path, ends := m.path("worker-0.rec"), m.ends()
	training := newAgent(t)
	fd := training.open(path, unix.O_RDONLY)
	training.must(call{Op: "pread", FD: fd, N: int(ends[100])})
	look := m.open(path, unix.O_RDONLY)
	m.must(call{Op: "pread", FD: look, N: int(ends[200])})
	training.must(call{Op: "close", FD: fd})
	m.must(call{Op: "pread", FD: look, Off: ends[200], N: int(ends[300] - ends[200])})
	require.Equal(t, []uint64{100}, m.consumed())
	require.False(t, m.reported().HasReader)
	fd = training.open(path, unix.O_RDONLY)
	training.must(call{Op: "pread", FD: fd, Off: ends[100], N: int(ends[150] - ends[100])})
	require.Equal(t, []uint64{150}, m.consumed(), "the training goes on")
}

// If a training starts programs, these close their descriptors, or pass them on.
func TestClosingDuplicateDescriptorDoesNotMoveReader(t *testing.T) {
	m := mount(t, 1)
	ends := m.ends()
	out, code := run(t, m.dir, "/usr/bin/python3", "-c", `
import json, os, subprocess, sys
half, more = int(sys.argv[1]), int(sys.argv[2])
consumed = lambda: json.load(open("checkpoint"))["done"][-1]["consumed"]
f = open("worker-0.rec", "rb", buffering=0)
assert len(f.read(half)) == half
before = consumed()
os.close(os.dup(f.fileno()))
if os.fork() == 0:
    os._exit(0)                          # the child's copy
os.wait()
subprocess.run(["md5sum", "worker-0.rec"], check=True, stdout=subprocess.DEVNULL)
subprocess.run(["md5sum", "/dev/fd/%d" % f.fileno()], check=True, stdout=subprocess.DEVNULL, pass_fds=[f.fileno()])
assert consumed() == before, consumed()
subprocess.run(["head", "-c", str(more)], check=True, stdin=f, stdout=subprocess.DEVNULL, bufsize=0)
print(before, consumed())
`, fmt.Sprint(ends[100]), fmt.Sprint(ends[10]))
	require.Zero(t, code, out)
	require.Regexp(t, `^\[100\] \[1[1-9]\d|\[1000\]`, out, "what a program gets through the training's descriptor counts")
}

// The kernel drops the pages of a file with direct_io whenever it is mapped: otherwise they would
// answer later mappings, whose reads would not be seen.
func TestSecondMappingIsDetected(t *testing.T) {
	m := mount(t, 1)
	path := m.path("worker-0.rec")
	size := int(m.ends()[1000])
	for range 2 {
		client := newAgent(t)
		fd := client.open(path, unix.O_RDONLY)
		require.Len(t, client.must(call{Op: "mmap", FD: fd, N: size, Flags: unix.MAP_PRIVATE}).Data, size)
		require.EqualValues(t, client.cmd.Process.Pid, m.reported().ReaderPID, "of %d", os.Getpid())
		client.must(call{Op: "close", FD: fd})
		require.Equal(t, []uint64{1000}, m.consumed())
	}
}
