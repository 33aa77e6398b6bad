package fs

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

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

// readOf is one read, answered before the next one begins.
func readOf(m *mark, p *progress, off, end int64) {
	p.begin()
	m.sent(p, off, end, 0)
}

func TestMarkFollowsOpenReader(t *testing.T) {
	mountsNothing(t)
	type event struct {
		handle   int
		off, end int64 // end 0: closed
		mark     int64
		reader   int // 0 for none
	}
	for _, c := range []struct {
		name   string
		events []event
	}{
		{"a program that reads from front to back", []event{{1, 0, 10, 10, 1}, {1, 10, 20, 20, 1}}},
		{"a seek forward counts as read", []event{{1, 0, 10, 10, 1}, {1, 500, 510, 510, 1}}},
		{"a seek back moves nothing", []event{{1, 0, 10, 10, 1}, {1, 2, 8, 10, 1}}},
		{"a look at the end is no reader", []event{{1, 90, 100, 0, 0}, {2, 0, 10, 10, 2}}},
		{"what was looked at before the reading from the front does not count", []event{{1, 90, 100, 0, 0}, {1, 0, 10, 10, 1}}},
		{"another handle moves nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 50, 10, 1}, {2, 10, 50, 10, 1}}},
		{"a new handle goes on where the reader closed", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 10, 20, 20, 2}}},
		{"a handle that starts behind the mark waits", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 11, 20, 10, 0}, {3, 9, 12, 12, 3}}},
		{"closing another handle changes nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 0, 10, 1}, {1, 10, 12, 12, 1}}},
		{"somebody looks at all of it before the training",
			[]event{{1, 0, 400, 400, 1}, {1, 0, 0, 400, 0}, {2, 0, 10, 10, 2}, {2, 10, 100, 100, 2}, {2, 0, 0, 400, 0}}},
		{"somebody looks while the training has it open",
			[]event{{1, 0, 10, 10, 1}, {2, 0, 400, 10, 1}, {2, 0, 0, 10, 1}, {1, 10, 20, 20, 1}, {1, 0, 0, 20, 0}}},
		{"somebody looks after the training",
			[]event{{1, 0, 100, 100, 1}, {1, 0, 0, 100, 0}, {2, 0, 10, 10, 2}, {2, 0, 0, 100, 0}}},
		{"a training that began while somebody looked goes on when the other has closed",
			[]event{{1, 0, 300, 300, 1}, {2, 0, 50, 300, 1}, {1, 300, 400, 400, 1}, {1, 0, 0, 400, 0}, {2, 50, 60, 60, 2}, {2, 60, 70, 70, 2}}},
		{"somebody who is further when the training ends moves nothing",
			[]event{{1, 0, 50, 50, 1}, {2, 0, 300, 50, 1}, {1, 0, 0, 50, 0}, {2, 300, 400, 50, 0}, {2, 0, 0, 50, 0}}},
		{"an onlooker that is behind does not jump",
			[]event{{1, 0, 50, 50, 1}, {2, 0, 10, 50, 1}, {1, 0, 0, 50, 0}, {2, 80, 90, 50, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m mark
			handles := map[int]*progress{1: {}, 2: {}, 3: {}}
			for i, e := range c.events {
				if e.end == 0 {
					m.closed(handles[e.handle])
				} else {
					readOf(&m, handles[e.handle], e.off, e.end)
				}
				require.EqualValues(t, e.mark, m.bytes(), "after event %d", i)
				require.True(t, m.reader == handles[e.reader], "reader after event %d", i)
			}
		})
	}
}

func TestReadingStartsAtFirstRecord(t *testing.T) {
	mountsNothing(t)
	var m mark
	var look, train progress
	m.furthest = 400
	look.begin()
	m.sent(&look, 129, 140, 128)
	require.EqualValues(t, 400, m.bytes())
	train.begin()
	m.sent(&train, 128, 140, 128) // as if numpy's header was skipped
	require.EqualValues(t, 140, m.bytes())
}

// naiveMark is the definition of the mark (lsiofs help tree), evaluated on the whole history at
// each step.
type naiveMark struct {
	events []naiveEvent
}

type naiveEvent struct {
	handle   int
	off, end int64 // end 0: closed
}

// state returns the mark and the reader after all events, 0 for none.
func (n *naiveMark) state() (bytes int64, reader int) {
	came := int64(0)       // the furthest that any reader came
	since := map[int]int{} // for each handle, the event since which what it was sent counts
	sentSince := func(h, until int) (end int64) {
		from, started := since[h]
		if !started {
			return -1
		}
		for _, e := range n.events[from : until+1] {
			if e.handle == h {
				end = max(end, e.end)
			}
		}
		return end
	}
	for i, e := range n.events {
		switch before := sentSince(e.handle, i-1); {
		case e.end == 0:
			if delete(since, e.handle); reader == e.handle {
				reader = 0
			}
			continue
		case reader == e.handle:
		case e.off == 0: // from the front
			since[e.handle] = i
			if reader == 0 {
				reader = e.handle
			}
		case reader != 0: // another handle moves the mark
		case e.off <= came && e.end > came: // across the mark
			since[e.handle], reader = i, e.handle
		case before >= 0 && before <= came && e.end <= came: // reads on, behind a reader that is gone
			reader = e.handle
		}
		if reader == e.handle {
			came = max(came, sentSince(e.handle, i))
		}
	}
	if reader == 0 {
		return came, 0
	}
	return sentSince(reader, len(n.events)-1), reader
}

func TestTheMarkEqualsItsDefinition(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		var m mark
		var naive naiveMark
		handles := map[int]*progress{}
		for range rapid.IntRange(1, 50).Draw(t, "events") {
			h := rapid.IntRange(1, 4).Draw(t, "handle")
			if handles[h] == nil {
				handles[h] = &progress{}
			}
			e := naiveEvent{handle: h}
			if rapid.IntRange(0, 5).Draw(t, "closes") == 0 {
				m.closed(handles[h])
				delete(handles, h)
			} else {
				if rapid.Bool().Draw(t, "not from the front") {
					e.off = rapid.Int64Range(0, 40).Draw(t, "off")
				}
				e.end = e.off + rapid.Int64Range(1, 20).Draw(t, "bytes")
				readOf(&m, handles[h], e.off, e.end)
			}
			naive.events = append(naive.events, e)
			bytes, reader := naive.state()
			if m.bytes() != bytes || m.reader != handles[reader] {
				t.Fatalf("the mark is %d, not %d, or its reader is not %d, after %v", m.bytes(), bytes, reader, naive.events)
			}
			if m.bytes() > m.furthest {
				t.Fatalf("the mark, %d, is beyond the furthest, %d", m.bytes(), m.furthest)
			}
		}
	})
}

// If one reader at a time continues where the last one ended, the mark is what the readers were
// sent, whatever other handles do.
func TestOnlookersNeverMoveMark(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		var m mark
		var reader progress
		var others [4]progress
		readOf(&m, &reader, 0, 1)
		at := int64(1)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			if rapid.Bool().Draw(t, "onlooker") {
				off := rapid.Int64Range(0, 100).Draw(t, "off")
				readOf(&m, &others[rapid.IntRange(0, 3).Draw(t, "who")], off, off+rapid.Int64Range(1, 100).Draw(t, "n"))
			} else {
				n := rapid.Int64Range(1, 10).Draw(t, "n")
				readOf(&m, &reader, at, at+n)
				at += n
			}
			if m.bytes() != at {
				t.Fatalf("mark is %d, the reader was sent %d", m.bytes(), at)
			}
		}
	})
}

// As with threads, AIO and io_uring: the read at the mark is answered last.
func TestConcurrentReadsCountInAnyOrderOfCompletion(t *testing.T) {
	mountsNothing(t)
	var m mark
	var p progress
	readOf(&m, &p, 90, 100) // a look at the end, which is over first
	require.EqualValues(t, 0, m.bytes())
	for range 4 { // of [0, 10), [20, 30), [30, 40), which fails, and [10, 20)
		p.begin()
	}
	m.sent(&p, 20, 30, 0)
	p.ended(0)
	m.sent(&p, 10, 20, 0)
	require.EqualValues(t, 0, m.bytes())
	m.sent(&p, 0, 10, 0)
	require.EqualValues(t, 30, m.bytes())
	readOf(&m, &p, 30, 40)
	require.EqualValues(t, 40, m.bytes())
	require.EqualValues(t, 30, p.last)
}
