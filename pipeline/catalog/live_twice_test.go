package catalog

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Two files that are duplicates of one shard count once: the one seen first, or of those seen
// together the first by path. The other counts once that one is gone.
func TestDuplicateShardCountsOnce(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.jsonl", linesOf(3, "a"))
	w.write("b.jsonl.zst", zst(linesOf(4, "b")))
	w.write("c.jsonl.gz", gz(linesOf(5, "c")))
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Len(t, s.Shards(), 3)
	w.write("a.jsonl.zst", zst(linesOf(3, "a")))
	w.write("b.jsonl", linesOf(4, "b"))
	w.write("c.jsonl.lz4", formattest.LZ4(linesOf(5, "c")))
	w.write("d.jsonl", linesOf(6, "d"))
	require.NoError(t, os.Symlink("d.jsonl", filepath.Join(w.data, "latest.jsonl")))
	w.look(s)
	require.Equal(t, []string{"a.jsonl", "b.jsonl.zst", "c.jsonl.gz", "d.jsonl"}, pathsOf(s.Shards()))
	require.EqualValues(t, 18, s.Counts().Records)
	require.Equal(t, 4, s.Counts().Waiting)
	require.Equal(t, []string{"a.jsonl.zst", "b.jsonl", "c.jsonl.lz4", "latest.jsonl"}, waitingPaths(s))
	reasons := map[string]string{}
	for _, x := range s.Waiting() {
		reasons[x.Path] = x.Reason
	}
	require.Contains(t, reasons["a.jsonl.zst"], "it is a.jsonl in a different codec: remove one of them")
	require.Contains(t, reasons["latest.jsonl"], "it is d.jsonl under another name: remove one of them")
	require.Equal(t, 4, w.log.count("file is left out"))
	require.EqualValues(t, 4, w.mustSeal(s, s.Shards()).PassedOver())

	// A waiting file is indexed: an epoch chosen by another node may contain it.
	twice := s.known["a.jsonl.zst"].shard
	require.EqualValues(t, 3, w.mustSeal(s, []LiveShard{twice}).Records())

	w.remove("a.jsonl")
	require.Zero(t, w.readsOf(func() { w.look(s) }))
	require.Equal(t, []string{"a.jsonl.zst", "b.jsonl.zst", "c.jsonl.gz", "d.jsonl"}, pathsOf(s.Shards()), "it waited for that one")
	require.EqualValues(t, 18, s.Counts().Records)
	require.NoError(t, s.Close())

	s = w.mustOpenLiveIndex() // of the files in the journals, the first by path
	require.Zero(t, w.readsOf(func() { w.look(s) }))
	require.Equal(t, []string{"a.jsonl.zst", "b.jsonl", "c.jsonl.gz", "d.jsonl"}, pathsOf(s.Shards()))
	w.remove("b.jsonl")
	w.remove("latest.jsonl")
	w.look(s)
	require.Equal(t, []string{"a.jsonl.zst", "b.jsonl.zst", "c.jsonl.gz", "d.jsonl"}, pathsOf(s.Shards()))
	require.Equal(t, []string{"c.jsonl.lz4"}, waitingPaths(s))
	require.Len(t, s.twins.shards, 4+3, "a key of each file, and one of each name with a codec")
	require.Len(t, s.twins.twice, 2)
}

// twoAtATime lets two shards be read at a time, however many cores there are.
func twoAtATime(c *Config) { c.Profile.Pass.Shards = 2 }

// readAfter delays the read of a file until another one has been indexed, though shards are read by
// path. The live index must have been opened with twoAtATime.
func (w *liveWorld) readAfter(s *LiveIndex, first, second string) {
	known := func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.known[second] != nil
	}
	var looked atomic.Bool // the beginning of each file is read to find out its format, then all of it
	looked.Store(s.config.Format.Name != "auto")
	w.onRead = func(o storage.Object) error {
		for o.Path == first && looked.Load() && !known() && w.t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if o.Path == second {
			looked.Store(true)
		}
		return nil
	}
}

func TestFirstPathWinsForDuplicateShardInAnyReadOrder(t *testing.T) {
	for first, second := range map[string]string{"d.jsonl": "latest.jsonl", "e.jsonl": "e.jsonl.zst"} {
		t.Run(second, func(t *testing.T) {
			w := newLiveWorld(newWorld(t))
			w.write("a.jsonl", linesOf(3, "a"))
			s := w.mustOpenLiveIndex(twoAtATime)
			w.look(s)
			w.write(first, linesOf(6, "d"))
			if filepath.Ext(second) == ".zst" {
				w.write(second, zst(linesOf(6, "d")))
			} else {
				require.NoError(t, os.Symlink(first, filepath.Join(w.data, second)))
			}
			w.readAfter(s, first, second)
			w.look(s)
			require.Equal(t, []string{"a.jsonl", first}, pathsOf(s.Shards()))
			require.Equal(t, []string{second}, waitingPaths(s))
		})
	}
}

func TestStreamsAreNamedAfterFirstPathInAnyReadOrder(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	s := w.mustOpenLiveIndex(twoAtATime, func(c *Config) { c.Format.Name = "jsonl" })
	w.write("a.ndjson", linesOf(3, "a"))
	w.write("b.jsonl", linesOf(3, "b"))
	w.readAfter(s, "a.ndjson", "b.jsonl")
	w.look(s)
	require.Len(t, s.Shards(), 2)
	require.Equal(t, ".ndjson", w.mustSeal(s, s.Shards()).StreamExtension())
}
