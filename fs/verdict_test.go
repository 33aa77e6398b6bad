package fs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/explain"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// makeDataset writes shards of a shape and returns their directory.
func makeDataset(t *testing.T, s synthetic.Shape, shards int, records uint64) string {
	t.Helper()
	dir := t.TempDir()
	for i := range shards {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("shard-%02d%s", i, s.Extension())))
		require.NoError(t, err)
		require.NoError(t, s.WriteShard(f, uint64(i)*records, records, nil))
		require.NoError(t, f.Close())
	}
	return dir
}

// mountReal mounts a dataset in this process, over a storage with injected faults.
func mountReal(t *testing.T, dir string, change func(*spec.Spec), fault func(*faulty.Storage)) *Mount {
	t.Helper()
	needFUSE(t)
	s := spec.Default()
	s.Dataset, s.IndexDir, s.SpoolDir = dir, t.TempDir(), t.TempDir()
	change(&s)
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{Faults: func(st storage.Storage) storage.Storage {
		f := faulty.New(st)
		fault(f)
		return f
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	m, err := New(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: newPoint(t), Version: "v0-test", Log: discard})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		require.NoError(t, m.Unmount(ctx))
		require.NoError(t, m.Wait())
	})
	return m
}

// readForEver starts a process that reads one epoch after another, as fast as it can.
func readForEver(t *testing.T, m *Mount, ext string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", `k=0; while cat "$0/epoch-$k/worker-0-of-1`+ext+`" > /dev/null; do k=$((k+1)); done`, m.MountPoint())
	cmd.WaitDelay = callTimeout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // cat ends with its shell
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// says waits until the verdict of status is kind.
func says(t *testing.T, m *Mount, kind explain.Kind) statusReport {
	t.Helper()
	a := newAgent(t)
	var r statusReport
	for end := time.Now().Add(callTimeout); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		r = statusReport{}
		require.NoError(t, json.Unmarshal([]byte(a.read(filepath.Join(m.MountPoint(), "status.json"))), &r))
		// A share of the first few milliseconds may be anything.
		if r.Explain.Verdict.Kind == kind && r.Explain.Second.Seconds >= 1 {
			t.Log(r.Explain.Verdict.Text)
			require.Contains(t, a.read(filepath.Join(m.MountPoint(), "metrics")), `lsiofs_stage_wait_seconds_total{stage="storage"}`)
			return r
		}
	}
	t.Fatalf("after %v it does not say %q: %q, %+v", callTimeout, kind, r.Explain.Verdict.Text, r.Explain.Minute)
	return r
}

// slowDisk makes each read take that long, one after another.
func slowDisk(each time.Duration) func(*faulty.Storage) {
	var mu sync.Mutex
	var free time.Time
	return func(f *faulty.Storage) {
		f.Delay = func(*storage.Read) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if free.Before(now) {
				free = now
			}
			free = free.Add(each)
			return free.Sub(now)
		}
	}
}

func noFault(*faulty.Storage) {}

// little gives a mount little memory, so that it keeps little of what it has read.
func little(read spec.Read) func(*spec.Spec) {
	return func(s *spec.Spec) {
		s.MemoryBytes, s.Read = 4<<20, read
		s.Order.SizeRecords, s.Order.Lanes = 256, 4
	}
}

func TestOnASlowDiskStatusNamesTheDisk(t *testing.T) {
	tar := makeDataset(t, synthetic.Shape{Format: "tar", RecordBytes: 12 << 10}, 4, 300)
	gz := makeDataset(t, synthetic.Shape{Format: "jsonl", Codec: "gz", RecordBytes: 1200}, 4, 1200)
	for _, c := range []struct {
		name, dir, ext string
		read           spec.Read
		each           time.Duration
	}{
		{"gathered", tar, ".tar", spec.ReadGather, 20 * time.Millisecond}, {"scanned", tar, ".tar", spec.ReadScan, 20 * time.Millisecond},
		// Slower than decompression, with the race detector on a busy core.
		{"compressed", gz, ".jsonl", spec.ReadScan, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := mountReal(t, c.dir, little(c.read), slowDisk(c.each))
			readForEver(t, m, c.ext)
			r := says(t, m, explain.KindStorage)
			require.Positive(t, r.Explain.Minute.Shares.Storage)
		})
	}
}

func TestWithASlowReaderStatusNamesTheReader(t *testing.T) {
	m := mountReal(t, makeDataset(t, synthetic.Shape{Format: "tar", RecordBytes: 12 << 10}, 2, 300), func(*spec.Spec) {}, noFault)
	stop := make(chan struct{})
	var reading sync.WaitGroup
	a := newAgent(t)
	fd := a.open(filepath.Join(m.MountPoint(), "epoch-0/worker-0-of-1.tar"), os.O_RDONLY)
	reading.Go(func() {
		for off := int64(0); ; off = (off + 64<<10) % (4 << 20) {
			a.do(call{Op: "pread", FD: fd, Off: off, N: 64 << 10})
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond): // the time for work of its own
			}
		}
	})
	defer func() { close(stop); reading.Wait() }()
	says(t, m, explain.KindReaders)
}

func TestWithCompressedShardsAndAFastReaderStatusNamesDecompression(t *testing.T) {
	dir := makeDataset(t, synthetic.Shape{Format: "jsonl", Codec: "gz", RecordBytes: 1200}, 4, 6000)
	m := mountReal(t, dir, little(spec.ReadScan), noFault)
	readForEver(t, m, ".jsonl")
	r := says(t, m, explain.KindDecompress)
	require.Positive(t, r.Explain.Minute.Stages[3].Busy, "decoders are at work")
}

func TestAReadThatIsNotAnsweredIsNamedWithItsShard(t *testing.T) {
	held := make(chan *faulty.Storage, 1)
	m := mountReal(t, makeDataset(t, synthetic.Shape{Format: "tar", RecordBytes: 12 << 10}, 2, 300), little(spec.ReadScan), func(f *faulty.Storage) { held <- f })
	f := <-held
	f.Hold()
	t.Cleanup(f.Release)
	readForEver(t, m, ".tar")
	r := says(t, m, explain.KindStalled)
	require.NotNil(t, r.Explain.Waiting)
	require.Equal(t, "storage", r.Explain.Waiting.Stage)
	require.Contains(t, r.Explain.Verdict.Text, ": shard shard-0")
	require.Equal(t, r.Explain.Verdict.Kind, explain.KindStalled)
	require.Contains(t, m.Sentence(), "which has not answered for")
}

func TestStatusReportsThatMountIsIdle(t *testing.T) {
	m := mount(t, 1)
	r := says(t, m.Mount, explain.KindIdle)
	require.Equal(t, "no reader is active", r.Explain.Verdict.Text)
	require.Nil(t, r.Explain.Waiting)
}

// evil is a shard name that a terminal would act on.
type evil struct{}

func (evil) Object(uint64) string { return "a\x1b[2J\u202e.tar" }

func TestStatusSentenceEscapesTerminalControls(t *testing.T) {
	m := mount(t, 1)
	waits := &m.tree.meter.Readers
	number := waits.Begin(meter.Now()-60*second, meter.Storage, nil, evil{}, 0)
	defer func() { waits.End(number, meter.Now()) }()
	text, err := m.tree.renderStatus(t.Context())
	require.NoError(t, err)
	// It waits longer while the text is rendered.
	require.Regexp(t, `for \d+ s: shard a\\x1b\[2J\\u202e\.tar`, string(text))
}
