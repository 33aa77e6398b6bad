package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// patterns are snapshots, each of which has the shards in one directory that match a pattern. The
// first one has started.
type patterns struct {
	list []string // by epoch: what follows the directory

	mu     sync.Mutex
	config catalog.Config
	taken  int
	opened map[uint64]int // how often, by epoch
	failed error          // of the next calls, if set
	held   chan struct{}  // if set, calls wait for it
	closed bool
}

func (p *patterns) Open(ctx context.Context, c catalog.Config) error {
	p.config, p.taken, p.opened = c, 1, map[uint64]int{}
	first, err := p.catalog(ctx, 0) // opens the storage
	if err != nil {
		return err
	}
	return first.Close()
}

func (p *patterns) catalog(ctx context.Context, epoch uint64) (*catalog.Catalog, error) {
	c := p.config
	c.Dataset = filepath.Join(c.Dataset, p.list[epoch])
	return catalog.Open(ctx, c)
}

func (p *patterns) Latest() (uint64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint64(p.taken - 1), p.taken > 0
}

func (p *patterns) Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error) {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return nil, run.Epoch{}, ctx.Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.failed != nil:
		return nil, run.Epoch{}, p.failed
	case epoch > uint64(p.taken):
		return nil, run.Epoch{}, &growing.NoEpochError{Epoch: epoch, At: fmt.Sprintf("this run is at %d", p.taken-1)}
	case epoch == uint64(p.taken) && (!take || p.taken == len(p.list)):
		return nil, run.Epoch{}, &growing.NotYetError{Epoch: epoch}
	}
	p.taken = max(p.taken, int(epoch)+1)
	p.opened[epoch]++
	c, err := p.catalog(ctx, epoch)
	if err != nil {
		return nil, run.Epoch{}, err
	}
	return c, run.Epoch{Epoch: epoch, Snapshot: c.Fingerprint()}, nil
}

func (p *patterns) CanTake(ctx context.Context, epoch uint64) error { panic("nobody looks here") }

func (p *patterns) Run() string              { return strings.Repeat("ab", 16) }
func (p *patterns) Growing() snapshot.Status { return snapshot.Status{Run: p.Run()} }

func (p *patterns) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (p *patterns) timesOpened(epoch uint64) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened[epoch]
}

// sixSets are subsets of the shards that makeLines writes; those of epochs 2 and 3 are the same.
var sixSets = []string{"s{0,1}.jsonl*", "s{1,2}.jsonl*", "s{2,3,4}.jsonl*", "s{2,3,4}.jsonl*", "s{4,5}.jsonl*", "s{0,5}.jsonl*", "s{0,1,2,3}.jsonl*", "s3.jsonl*"}

func openPatterns(t *testing.T, dir string, p *patterns) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), testSpec(t, dir), Options{Snapshots: p, Ahead: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()); require.True(t, p.closed) })
	return d
}

func (d *generations) openNow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// An epoch of a growing dataset is that epoch of the dataset made of its snapshot.
func TestEpochsMatchTheirSnapshots(t *testing.T) {
	dir := makeLines(t)
	p := &patterns{list: sixSets}
	d := openPatterns(t, dir, p)
	require.True(t, d.Grows())
	require.Equal(t, p.Run(), d.Run())
	for epoch, pattern := range sixSets {
		e := uint64(epoch)
		require.True(t, d.HasEpoch(e))
		require.False(t, d.HasEpoch(e+2))
		s := testSpec(t, filepath.Join(dir, pattern))
		s.Epoch = e
		alone := open(t, s)

		fingerprint, err := d.EpochFingerprint(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, alone.Fingerprint(), fingerprint)
		records, err := d.EpochRecords(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, alone.Records(), records)
		require.NoError(t, d.Begin(t.Context(), e))
		require.Equal(t, fingerprint, d.Fingerprint(), "it is the current one")
		require.Equal(t, alone.StreamBytes(), d.StreamBytes())
		text, err := d.DescribeEpoch(t.Context(), e)
		require.NoError(t, err)
		current, err := d.Describe()
		require.NoError(t, err)
		require.Equal(t, string(current), string(text))
		require.Contains(t, string(text), fingerprint)

		set, err := d.Set(t.Context(), e, nil, s.Deal)
		require.NoError(t, err)
		want, err := alone.Set(t.Context(), e, nil, s.Deal)
		require.NoError(t, err)
		for w := range s.Deal.Workers {
			require.True(t, bytes.Equal(readFile(t, want, w, stream.Data, 9000), readFile(t, set, w, stream.Data, 9000)))
		}
	}
	require.Equal(t, 1, p.timesOpened(3))
	_, err := d.EpochRecords(t.Context(), uint64(len(sixSets)))
	require.ErrorIs(t, err, growing.ErrNotYet)
	_, err = d.EpochRecords(t.Context(), uint64(len(sixSets))+1)
	require.ErrorIs(t, err, growing.ErrNoEpoch)
	require.NotNil(t, d.Status().Growing)
}

// Unused generations are closed when there are more than four, or after ten minutes; the current
// one and those with open files stay. A closed one is opened again.
func TestEpochsStayOpenWhileUsed(t *testing.T) {
	p := &patterns{list: sixSets}
	d := openPatterns(t, makeLines(t), p)
	var clock sync.Mutex
	now := time.Now()
	pass := func(by time.Duration) {
		clock.Lock()
		now = now.Add(by)
		clock.Unlock()
		d.generations.sweep()
	}
	d.generations.mu.Lock()
	d.generations.now = func() time.Time { clock.Lock(); defer clock.Unlock(); return now }
	d.generations.mu.Unlock()
	deal := d.Spec().Deal

	set, err := d.Set(t.Context(), 1, nil, deal)
	require.NoError(t, err)
	want := readFile(t, set, 1, stream.Data, 9000)
	h := set.Open(1, stream.Data)
	for epoch := range uint64(len(sixSets)) {
		_, err := d.EpochRecords(t.Context(), epoch)
		require.NoError(t, err)
		pass(time.Second)
	}
	require.Equal(t, 2+keptGenerations, d.generations.openNow(), "the current one, that of the file, and four")
	pass(keptUnused)
	require.Equal(t, 2, d.generations.openNow())
	require.Equal(t, 1, p.timesOpened(1))

	var r stream.Reply
	require.NoError(t, h.ReadAt(t.Context(), &r, 0, 100))
	require.Equal(t, string(want[:100]), string(slices.Concat(r.Slices...)))
	r.Release()
	h.Close()
	h.Close()
	pass(keptUnused - 1)
	require.Equal(t, 2, d.generations.openNow(), "it was used a moment ago")
	pass(1)
	require.Equal(t, 1, d.generations.openNow())

	_, err = set.SizeBytes(t.Context(), 0, stream.Data)
	require.ErrorIs(t, err, stream.ErrRetired)
	late := set.Open(0, stream.Data)
	require.ErrorIs(t, late.ReadAt(t.Context(), &r, 0, 100), stream.ErrRetired)
	late.Close()
	set, err = d.Set(t.Context(), 1, nil, deal)
	require.NoError(t, err)
	require.Equal(t, want, readFile(t, set, 1, stream.Data, 9000), "it is opened again")
	require.Equal(t, 2, p.timesOpened(1))
}

// Callers that ask for an epoch while it is being opened share one opening, and can stop waiting;
// the opening continues.
func TestEpochIsOpenedOnceForConcurrentCallers(t *testing.T) {
	p := &patterns{list: sixSets}
	d := openPatterns(t, makeLines(t), p)
	p.mu.Lock()
	p.held = make(chan struct{})
	p.mu.Unlock()
	cancelled, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		_, err := d.EpochRecords(cancelled, 1)
		if err != context.Canceled {
			t.Error(err)
		}
	})
	for range 5 {
		asking.Go(func() {
			if _, err := d.EpochRecords(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
	}
	_, err := d.EpochRecords(t.Context(), 0)
	require.NoError(t, err, "others are not held up")
	cancel()
	close(p.held)
	asking.Wait()
	require.Equal(t, 1, p.timesOpened(1))
}

func TestFailedEpochOpenIsRetried(t *testing.T) {
	p := &patterns{list: sixSets}
	d := openPatterns(t, makeLines(t), p)
	p.mu.Lock()
	p.failed = run.ErrGone
	p.mu.Unlock()
	_, err := d.Set(t.Context(), 1, nil, d.Spec().Deal)
	require.ErrorIs(t, err, run.ErrGone)
	p.mu.Lock()
	p.failed = nil
	p.mu.Unlock()
	_, err = d.Set(t.Context(), 1, nil, d.Spec().Deal)
	require.NoError(t, err)
}

// Each step of opening an epoch fails once; then nothing of that epoch stays open, but the others
// do.
func TestFailedEpochOpenLeaksNothingAtAnyStep(t *testing.T) {
	var mu sync.Mutex
	fail, counting := 0, false
	p := &patterns{list: sixSets}
	s := testSpec(t, makeLines(t))
	d, err := Open(t.Context(), s, Options{Snapshots: p, Ahead: true, afterStep: func(string) error {
		mu.Lock()
		defer mu.Unlock()
		if fail--; counting && fail == 0 {
			return errStep
		}
		return nil
	}})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for epoch := range uint64(7) { // the storage keeps files open that it has read
		_, err := d.EpochRecords(t.Context(), epoch)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return d.generations.openNow() == 1+keptGenerations }, time.Minute, time.Millisecond)
	descriptors, ignored := openDescriptors(t), goleak.IgnoreCurrent()
	for n := 1; ; n++ {
		mu.Lock()
		fail, counting = n, true
		mu.Unlock()
		_, err := d.EpochRecords(t.Context(), 7)
		if err == nil {
			require.Equal(t, 9, n, "catalog, records, part, cache, fetcher, source, orders and ahead have failed")
			break
		}
		require.ErrorIs(t, err, errStep)
		require.Equal(t, 1+keptGenerations, d.generations.openNow())
		require.Eventually(t, func() bool { return openDescriptors(t) <= descriptors }, time.Minute, time.Millisecond)
		goleak.VerifyNone(t, ignored)
	}
}

// A dataset whose first epoch can't be opened leaves nothing open, including the snapshots.
func TestFirstEpochThatFailsToOpen(t *testing.T) {
	p := &patterns{list: sixSets}
	s := testSpec(t, makeLines(t))
	s.Epoch = 5
	_, err := Open(t.Context(), s, Options{Snapshots: p})
	require.ErrorIs(t, err, growing.ErrNoEpoch)
	require.True(t, p.closed)

	gone := &patterns{list: []string{"none*"}}
	_, err = Open(t.Context(), s, Options{Snapshots: gone})
	require.Error(t, err)
	require.True(t, gone.closed)
	require.NoError(t, os.RemoveAll(s.IndexDir))
}
