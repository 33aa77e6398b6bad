package top

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/fs"
)

// savedStatus returns one of two states that a real mount wrote some seconds apart.
func savedStatus(t *testing.T, n int) *fs.Status {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("status-%d.json", n)))
	require.NoError(t, err)
	s := new(fs.Status)
	require.NoError(t, json.Unmarshal(b, s))
	return s
}

// readBelow sets a state in which two of four workers read epoch 3 from some record on, and another
// one epoch 2.
func readBelow(s *fs.Status, readBytes int64) *fs.Status {
	stream := func(dir string, epoch, from, w uint64, read int64, share float64, open bool) fs.StreamReport {
		return fs.StreamReport{
			Name: fmt.Sprintf("%s/worker-%d-of-4.jsonl", dir, w), Directory: dir, Epoch: epoch, From: from, Worker: w, Workers: 4,
			SizeBytes: 400 << 20, ReadBytes: read, EpochShare: share, Open: open,
		}
	}
	s.Reading = &fs.ReadingReport{Epoch: 3, Directory: "epoch-3/from-20480", EpochShare: 0.625, Latest: true, Streams: []fs.StreamReport{
		stream("epoch-3/from-20480", 3, 20480, 1, readBytes, 0.5, true),
		stream("epoch-3/from-20480", 3, 20480, 0, 400<<20, 1, false),
		stream("epoch-2", 2, 0, 3, 100<<20, 0.25, true),
	}}
	for i := range s.Files {
		s.Files[i].DeliveredBytes, s.Files[i].HasReader = 0, false
	}
	return s
}

func TestTopShowsWhatIsReadBelowAnEpochWithItsPlaceInIt(t *testing.T) {
	before, now := readBelow(savedStatus(t, 1), 40<<20), readBelow(savedStatus(t, 2), 80<<20)
	now.UptimeSeconds = before.UptimeSeconds + 10
	f := frame{point: "/mnt/train", now: now, before: before}
	goldentest.Equal(t, "top-below-80.txt", f.draw(80))
	require.Contains(t, f.short(), "epoch 3 62 %, 1m20s left: ")
	require.EqualValues(t, 3, f.line().Epoch)
	require.Len(t, f.line().Streams, 3, "nobody reads a worker file of the root")

	now.Files[0].DeliveredBytes, now.Reading.Latest = 1, false
	require.Len(t, f.line().Streams, 3+len(now.Files))
	require.Contains(t, f.draw(80), "\nepoch 0, 0.0 % read", "the worker files were read last")
	require.Contains(t, f.draw(80), "worker-1.jsonl")

	now.Reading.More, before.Reading.More = 90, 90
	now.Reading.Streams[0].Name = "epoch-3/from-20480/worker-2-of-4.jsonl"
	require.Zero(t, f.streams()[2].BytesPerSecond, "it may have been read before")
	require.Contains(t, f.draw(80), "and 90 streams more\n")
	for width := range 100 {
		require.NotPanics(t, func() { f.draw(width) })
	}
}

// ofAService makes it the status of a dataset in a bucket, with a disk cache.
func ofAService(s *fs.Status) *fs.Status {
	s.Dataset = "s3://bucket/train"
	s.Explain.Verdict.Text = "readers wait for s3://bucket/train 71 % of the time: throttled, 12 of 3,456 requests in 60 s were rejected; larger --chunk-bytes need fewer requests, and a disk cache saves them from the second epoch on"
	s.Explain.Verdict.Cause = "throttled"
	s.Pipeline.Remote = &fs.RemoteReport{
		Requests: map[string]uint64{"206": 3400, "200": 40, "503": 12, "none": 4}, Bytes: 3 << 30, Slots: 64, InUse: 60, Waiting: 7, InRetry: 2,
		Throttled: 12, Retries: map[string]uint64{"throttled": 12, "failed": 4}, Hedges: 30, HedgesWon: 21, PriceDollars: 0.0156,
		LastError: "train-000.tar: 503 Service Unavailable (SlowDown)",
	}
	s.Pipeline.Remote.FirstByte.P50, s.Pipeline.Remote.FirstByte.P95, s.Pipeline.Remote.FirstByte.P99 = 0.026, 0.18, 1.2
	s.Pipeline.Cache = &fs.CacheReport{Dir: "/cache/data", State: "full", Reason: "cache full by others", Bytes: 9 << 30, Bound: 10 << 30, Hits: 750, Misses: 250, BadPages: 1, Fill: 0.9}
	return s
}

func TestTopShowsServiceStatistics(t *testing.T) {
	f := frame{point: "/mnt/train", now: ofAService(savedStatus(t, 2)), before: savedStatus(t, 1)}
	goldentest.Equal(t, "top-service-80.txt", f.draw(80))
	require.Equal(t, uint64(12), f.line().Remote.Throttled)
	require.Equal(t, uint64(1), f.line().Cache.BadPages)
	for width := range 100 {
		for line := range strings.Lines(f.draw(width)) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), max(width, 40))
		}
	}
	f.now.Pipeline.Remote, f.now.Pipeline.Cache = nil, nil
	require.NotContains(t, f.draw(80), "first bytes  ", "a dataset in a file system has none")
}

// pointWith returns a directory with a status.json, which resembles a mount as far as plain files
// can.
func pointWith(t *testing.T, n int) string {
	dir := t.TempDir()
	b, err := os.ReadFile(filepath.Join("testdata", fmt.Sprintf("status-%d.json", n)))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), b, 0o600))
	return dir
}

func TestFramesOfAllWidths(t *testing.T) {
	f := frame{point: "/mnt/train", now: savedStatus(t, 2), before: savedStatus(t, 1)}
	for _, width := range []int{60, 80, 120} {
		text := f.draw(width)
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width)
		}
		goldentest.Equal(t, fmt.Sprintf("top-%d.txt", width), text)
	}
	goldentest.Equal(t, "top-line.txt", f.short()+"\n")
}

func TestFrameOfNewOrUnresponsiveMount(t *testing.T) {
	f := frame{point: "/mnt/train", now: savedStatus(t, 1)}
	require.NotContains(t, f.draw(80), " left\n", "no rate is known yet")
	f.silent = 12 * time.Second
	require.True(t, strings.HasPrefix(f.draw(80), "/mnt/train has not answered for 12s; before that, "), f.draw(80))
	require.Equal(t, "/mnt/train has not answered for 12s", f.short())
	f.silent = 0
	f.now.Explain.Verdict.Text = "a reader waits for the disk: shard a\x1b[2J\u202e.tar"
	for _, text := range []string{f.draw(80), f.short()} {
		require.Contains(t, text, `shard a\x1b[2J\u202e.tar`, "names are of others")
	}
	empty := frame{point: "/mnt/train", now: new(fs.Status)}
	for width := range 200 {
		require.NotPanics(t, func() { empty.draw(width); f.draw(width) })
	}
}

func TestEndingAndIdleStreams(t *testing.T) {
	before, now := savedStatus(t, 1), savedStatus(t, 1)
	now.UptimeSeconds = before.UptimeSeconds + 10
	now.Files[0].DeliveredBytes = before.Files[0].DeliveredBytes + 1000
	now.Files[0].SizeBytes = now.Files[0].DeliveredBytes + 500
	f := frame{now: now, before: before}
	lines := f.streams()
	require.Equal(t, 100.0, lines[0].BytesPerSecond)
	require.Equal(t, 5.0, lines[0].LeftSeconds)
	require.Equal(t, -1.0, lines[1].LeftSeconds, "nobody reads it")
	_, left := f.epoch()
	require.Equal(t, -1.0, left)
	now.Files[1].DeliveredBytes = now.Files[1].SizeBytes
	require.Zero(t, f.streams()[1].LeftSeconds)
	_, left = f.epoch()
	require.Equal(t, 5.0, left)
}

// A pipe without a writer acts as a mount that does not answer.
func TestTopShowsHangingMount(t *testing.T) {
	dir := pointWith(t, 1)
	w := newWatch(dir)
	require.NoError(t, w.look(t.Context()).err)
	path := filepath.Join(dir, "status.json")
	require.NoError(t, os.Remove(path))
	require.NoError(t, unix.Mkfifo(path, 0o600))
	w.status.patience = 10 * time.Millisecond
	f := w.look(t.Context())
	require.NoError(t, f.err)
	require.Positive(t, f.silent)
	require.Positive(t, w.look(t.Context()).silent, "one read is under way, and no other")
	b, err := json.Marshal(savedStatus(t, 2))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o600)) // the mount answers at last
	w.status.patience = time.Minute
	f = w.look(t.Context())
	require.NoError(t, f.err)
	require.Zero(t, f.silent)
	require.NotNil(t, f.before)

	hanging := newWatch(dir)
	hanging.status.patience = 10 * time.Millisecond
	require.ErrorContains(t, hanging.look(t.Context()).err, "has not answered for")
	require.NoError(t, os.WriteFile(path, b, 0o600))
	<-hanging.status.reading
}

func TestScreenIsRedrawnResizedAndRestored(t *testing.T) {
	for _, key := range []tcell.Key{tcell.KeyCtrlC, tcell.KeyEscape, tcell.KeyRune} {
		s := &shownScreen{SimulationScreen: tcell.NewSimulationScreen("UTF-8")}
		require.NoError(t, s.Init())
		s.SetSize(80, 30)
		w := newWatch(pointWith(t, 2))
		require.NoError(t, w.look(t.Context()).err)
		ended := make(chan error, 1)
		go func() { ended <- drawFrames(t.Context(), w, s) }()
		require.Eventually(t, func() bool { return strings.Contains(s.shown(), "worker-1.jsonl") }, time.Minute, 10*time.Millisecond)
		s.SetSize(60, 5)
		require.NoError(t, s.PostEvent(tcell.NewEventResize(60, 5)))
		require.Eventually(t, func() bool { return !strings.Contains(s.shown(), "worker-1.jsonl") }, time.Minute, 10*time.Millisecond)
		s.InjectKey(key, 'q', tcell.ModNone)
		require.NoError(t, <-ended)
		s.Fini()
	}
}

func TestScreenIsRestoredWhenMountIsGone(t *testing.T) {
	s := tcell.NewSimulationScreen("UTF-8")
	require.NoError(t, s.Init())
	defer s.Fini()
	dir := pointWith(t, 2)
	w := newWatch(dir)
	require.NoError(t, w.look(t.Context()).err)
	require.NoError(t, os.Remove(filepath.Join(dir, "status.json")))
	require.ErrorContains(t, drawFrames(t.Context(), w, s), "was unmounted, or its server ended")
}

// shownScreen keeps what it shows as text, because the drawing goroutine writes to the cells of a
// simulation.
type shownScreen struct {
	tcell.SimulationScreen
	mu   sync.Mutex
	text string
}

func (s *shownScreen) Show() {
	s.SimulationScreen.Show()
	var b strings.Builder
	cells, width, _ := s.GetContents()
	for i, c := range cells {
		if i%width == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(string(c.Runes))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = b.String()
}

// shown returns the text on the screen. It is safe for concurrent use.
func (s *shownScreen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}
