package snapshot

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// many is a live index that claims shards which don't exist.
type many struct {
	*catalog.LiveIndex
	shards []catalog.LiveShard
}

func (m *many) Shards() []catalog.LiveShard { return append([]catalog.LiveShard(nil), m.shards...) }

// BenchmarkStart measures starting an epoch of indexed shards, up to its record in the run
// directory: another look, the window, the comparison, the text, and two files. Building the
// catalog afterwards is measured by package catalog.
func BenchmarkStart(b *testing.B) {
	for _, shards := range []int{100, 500_000} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			root := b.TempDir()
			p := place{root, b.TempDir(), b.TempDir()}
			n := open(b, p)
			m := &many{LiveIndex: n.live}
			for i := range shards {
				path := fmt.Sprintf("training.%d.gz", 1_000_000_000+i*7919%shards)
				m.shards = append(m.shards, catalog.LiveShard{Path: path, ModTimeNanos: int64(i), Records: 80, Units: 1, Bytes: 668480})
				n.queue.settled[sumOf(path)] = 1
			}
			n.config.Index = m
			epoch := uint64(0)
			for b.Loop() {
				require.NoError(b, n.start(context.Background(), epoch))
				epoch++
			}
		})
	}
}

// BenchmarkArrivals measures the time from the close of a file until it is in the index, at a
// thousand files per second.
func BenchmarkArrivals(b *testing.B) {
	p := place{b.TempDir(), b.TempDir(), b.TempDir()}
	n := open(b, p)
	const rate = time.Millisecond
	var longest time.Duration
	begun, files := time.Now(), 0
	closed := []time.Time{}
	seen := 0
	look := func() {
		has := len(n.live.Shards())
		if seen < has { // files are indexed approximately in the order of arrival
			longest = max(longest, time.Since(closed[seen]))
			seen = has
		}
	}
	for b.Loop() {
		p.put(b, 2, fmt.Sprintf("%d/%d.txt", files/1000, files))
		closed = append(closed, time.Now())
		files++
		if files%100 == 0 {
			look()
		}
		time.Sleep(time.Until(begun.Add(time.Duration(files) * rate)))
	}
	require.Eventually(b, func() bool { look(); return seen == files }, patience, 10*time.Millisecond)
	b.ReportMetric(longest.Seconds(), "s-until-indexed")
}

// BenchmarkStatus measures the cost of an idle snapshotter, as a share of a core.
func BenchmarkStatus(b *testing.B) {
	p := place{b.TempDir(), b.TempDir(), b.TempDir()}
	n := open(b, p)
	p.put(b, 2, numbered("#.txt", 0, 100)...)
	n.eventually(numbered("#.txt", 0, 100)...)
	for b.Loop() {
		_ = n.Status()
	}
}
