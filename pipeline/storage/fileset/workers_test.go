package fileset

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// hanging is a storage of one directory, d, with files that hang as the test specifies: opening one
// blocks until letGo.
type hanging struct {
	*Storage
	object  storage.Object
	arrived chan int // number of a file that hangs, once for each attempt to open it

	mu    sync.Mutex
	hangs map[int]chan struct{}
}

const hangingFiles = 200

func openHanging(t *testing.T, hangs ...int) *hanging {
	root := t.TempDir()
	for i := range hangingFiles {
		write(t, root, fmt.Sprintf("d/%03d", i), fmt.Appendf(nil, "%04d", i))
	}
	h := &hanging{Storage: open(t, root, bare{}), arrived: make(chan int, 1000), hangs: map[int]chan struct{}{}}
	h.object = list(t, h.Storage)["d"]
	for _, i := range hangs {
		h.hangs[i] = make(chan struct{})
	}
	t.Cleanup(h.letGo) // before the storage is closed
	h.before = func(key fileKey) {
		h.mu.Lock()
		gate := h.hangs[key.i]
		h.mu.Unlock()
		if gate != nil {
			h.arrived <- key.i
			<-gate
		}
	}
	return h
}

// letGo ends all hanging.
func (h *hanging) letGo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, gate := range h.hangs {
		close(gate)
		delete(h.hangs, i)
	}
}

// submit reads files, one per read, and returns a channel for the result of each.
func (h *hanging) submit(t *testing.T, files ...int) (ends []chan error) {
	var reads []*storage.Read
	for _, i := range files {
		end, buf := make(chan error, 1), make([]byte, 4)
		reads = append(reads, &storage.Read{Object: h.object, OffsetBytes: int64(4 * i), Buf: buf, Done: func(err error) {
			if err == nil && string(buf) != fmt.Sprintf("%04d", i) {
				err = fmt.Errorf("file %d reads %q", i, buf)
			}
			end <- err
		}})
		ends = append(ends, end)
	}
	h.Submit(reads)
	return ends
}

func requireEnds(t *testing.T, ends []chan error) {
	t.Helper()
	for _, end := range ends {
		select {
		case err := <-end:
			require.NoError(t, err)
		case <-time.After(90 * time.Second):
			require.Fail(t, "a read does not end")
		}
	}
}

// requireArrivals waits until files that hang have been opened n times.
func (h *hanging) requireArrivals(t *testing.T, n int) {
	t.Helper()
	for range n {
		select {
		case <-h.arrived:
		case <-time.After(90 * time.Second):
			require.Fail(t, "a file that hangs is not opened")
		}
	}
}

// kinds are storages whose files may have to be waited for: those whose kernel can't report what is
// in memory, and those on another machine's disk, whose workers take one job at a time.
var kinds = map[string]func(s *Storage){
	"blind":  func(s *Storage) { s.blind.Store(true) },
	"remote": func(s *Storage) { s.blind.Store(true); s.lookers.Batch, s.waiters.Batch = 1, 1 },
}

// No worker is stuck here: there are enough threads, and each job gets one.
func TestHangingFileBlocksNoOtherWhileThreadsAreFree(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			h := openHanging(t, 0, 1, 2)
			kind(h.Storage)
			h.most, h.pool.StuckAfter = 8, time.Hour
			var slow []chan error
			for i := range 3 {
				slow = append(slow, h.submit(t, i)...)
				h.requireArrivals(t, 1)
				for other := range 5 {
					requireEnds(t, h.submit(t, 10+other))
				}
			}
			h.letGo()
			requireEnds(t, slow)
		})
	}
}

// The same is true of the waiters, which get what the lookers have missed.
func TestColdReadsAreServedConcurrently(t *testing.T) {
	h := openHanging(t, 0, 1, 2)
	h.most, h.pool.StuckAfter = 8, time.Hour
	missed := func(i int) chan error {
		end := make(chan error, 1)
		r := &storage.Read{Object: h.object, OffsetBytes: int64(4 * i), Buf: make([]byte, 4), Done: func(err error) { end <- err }}
		x := &reading{read: r, table: h.table, files: [2]int{i, i + 1}}
		x.table.hold()
		var err error
		x.segment, err = h.table.find(h.object)
		require.NoError(t, err)
		require.True(t, h.inflight.Begin(1))
		x.pending.Store(1)
		h.miss(job{reading: x, from: i, to: i + 1, missed: true})
		h.end(x) // the looker's part
		return end
	}
	var slow []chan error
	for i := range 3 {
		slow = append(slow, missed(i))
		h.requireArrivals(t, 1)
		requireEnds(t, []chan error{missed(10 + i)})
	}
	h.letGo()
	requireEnds(t, slow)
}

func TestMoreHangingFilesThanThreadsBlockNoOther(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			var files []int
			for i := range 40 {
				files = append(files, i)
			}
			h := openHanging(t, files...)
			kind(h.Storage)
			h.most, h.pool.StuckAfter = 2, 10*time.Millisecond
			slow := h.submit(t, files...)
			h.requireArrivals(t, len(files))
			healthy := make([]int, 0, hangingFiles-40)
			for i := 40; i < hangingFiles; i++ {
				healthy = append(healthy, i)
			}
			requireEnds(t, h.submit(t, healthy...))
			require.Eventually(t, func() bool { return h.Status().Stuck >= int64(len(files)-2) }, 90*time.Second, time.Millisecond)
			h.letGo()
			requireEnds(t, slow)
			require.Eventually(t, func() bool { return h.Status().Stuck == 0 }, 90*time.Second, time.Millisecond)
			requireEnds(t, h.submit(t, append(files, healthy...)...))
		})
	}
}

// Jobs that a goroutine has taken together with a file that hangs are done by others.
func TestJobsQueuedAfterHangingFileAreTakenByOthers(t *testing.T) {
	h := openHanging(t, 0)
	kinds["blind"](h.Storage)
	h.most, h.pool.StuckAfter = 1, 10*time.Millisecond
	ends := h.submit(t, 0, 1, 2, 3, 4, 5)
	requireEnds(t, ends[1:])
	h.letGo()
	requireEnds(t, ends[:1])
}

// A thousand reads of a file that hangs use a few threads, and the others stay free.
func TestHangingFileOfManyReadersLeavesThreadsFree(t *testing.T) {
	h := openHanging(t, 0)
	kinds["remote"](h.Storage)
	h.most, h.pool.MaxStuck, h.pool.StuckAfter = 2, 10, 10*time.Millisecond
	same := make([]int, 1000)
	slow := h.submit(t, same...)
	h.requireArrivals(t, uring.MaxStuckOfKey)
	for i := 1; i < 20; i++ {
		requireEnds(t, h.submit(t, i))
	}
	require.LessOrEqual(t, len(h.arrived), 2, "of it no more are begun than were before they were stuck")
	h.letGo()
	requireEnds(t, slow)
	require.Zero(t, h.pool.Stuck())
}

func TestCloseWaitsForHangingFile(t *testing.T) {
	h := openHanging(t, 0)
	kinds["remote"](h.Storage)
	h.pool.StuckAfter = time.Millisecond
	slow := h.submit(t, 0, 0, 0, 0, 0, 0, 0)
	h.requireArrivals(t, uring.MaxStuckOfKey)
	require.Eventually(t, func() bool { return h.pool.Stuck() >= 1 }, 90*time.Second, time.Millisecond)
	closed := make(chan error)
	go func() { closed <- h.Close() }()
	h.letGo()
	requireEnds(t, slow)
	require.NoError(t, <-closed)
}
