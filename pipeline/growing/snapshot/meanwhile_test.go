package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// watchedIndex is a live index that calls functions of the test first.
type watchedIndex struct {
	*catalog.LiveIndex
	match  func(path string) bool
	index  func(files []storage.Object)
	forget func(path string)
	text   func()
	shards func()
}

func (s *watchedIndex) Shards() []catalog.LiveShard {
	if s.shards != nil {
		s.shards()
	}
	return s.LiveIndex.Shards()
}

func (s *watchedIndex) Match(path string, isDir bool) bool {
	return s.LiveIndex.Match(path, isDir) && (s.match == nil || s.match(path))
}

func (s *watchedIndex) Index(ctx context.Context, files []storage.Object) error {
	if s.index != nil {
		s.index(files)
	}
	return s.LiveIndex.Index(ctx, files)
}

func (s *watchedIndex) Forget(path string) {
	if s.forget != nil {
		s.forget(path)
	}
	s.LiveIndex.Forget(path)
}

func (s *watchedIndex) Text(shards []catalog.LiveShard) ([]byte, error) {
	if s.text != nil {
		s.text()
	}
	return s.LiveIndex.Text(shards)
}

// lateFile returns a node whose watcher does not see 2.txt, although epoch 0, started by another
// node, has it: the test decides when it is seen.
func lateFile(t *testing.T) (*node, *watchedIndex) {
	here := newPlace(t)
	n := open(t, here)
	n.put(t, 10, "1.txt", "2.txt")
	n.eventually("1.txt", "2.txt")
	n.taken(0)
	there := newPlace(t)
	there.run = here.run
	there.put(t, 10, "1.txt", "2.txt")
	w := &watchedIndex{match: func(path string) bool { return path != "2.txt" }}
	other := open(t, there, func(c *Config) {
		w.LiveIndex = c.Index.(*catalog.LiveIndex)
		c.Index = w
	})
	other.eventually("1.txt")
	return other, w
}

// seen reports a file to the queue as the watcher does.
func (n *node) seen(path string) {
	o, err := n.stat(context.Background(), path)
	require.NoError(n.t, err)
	n.queue.add(o)
}

// A file that was indexed because a snapshot has it is forgotten until it is settled. If it settles
// at that very moment it must not be forgotten: it would not be reported again.
func TestFileSettledWhileBeingForgottenStays(t *testing.T) {
	n, w := lateFile(t)
	forgotten, told := false, false
	w.forget = func(path string) {
		if path != "2.txt" || forgotten {
			return
		}
		forgotten = true
		if n.queue.mu.TryLock() { // the watcher could report it now
			n.queue.mu.Unlock()
			n.seen(path)
			told = true
			require.NoError(t, n.indexed(t.Context()))
		}
	}
	_, paths := n.taken(0)
	require.Equal(t, []string{"1.txt", "2.txt"}, paths)
	require.True(t, forgotten)
	if !told {
		n.seen("2.txt")
	}
	n.eventually("1.txt", "2.txt")
}

// A file may be rewritten between the look at it, for a snapshot that has it, and its indexing. Its
// latest state must win.
func TestFileChangedDuringSnapshotIsIndexedInLatestState(t *testing.T) {
	n, w := lateFile(t)
	changed := make(chan struct{})
	done := false
	w.index = func(files []storage.Object) {
		if len(files) != 1 || files[0].Path != "2.txt" || done {
			return
		}
		done = true
		n.put(t, 11, "2.txt")
		n.seen("2.txt")
		if len(n.indexing) == 0 { // it could be indexed now
			require.NoError(t, n.indexed(context.Background()))
		}
		close(changed)
	}
	any, err := n.indexPaths(t.Context(), []string{"2.txt"}, map[string]bool{})
	require.NoError(t, err)
	require.True(t, any)
	<-changed
	n.eventually("1.txt", "2.txt")
	for _, s := range n.live.Shards() {
		require.EqualValues(t, map[string]int{"1.txt": 10, "2.txt": 11}[s.Path], s.Records)
	}
}

// holding opens a node that makes links.
func holding(t *testing.T) (*node, *watchedIndex) {
	p := newPlace(t)
	w := &watchedIndex{}
	return open(t, p, func(c *Config) {
		c.Hold = hardlink.NewLinks(p.data)
		c.Storage = hardlink.Wrap(c.Storage.(*local.Storage), c.Hold)
		w.LiveIndex = c.Index.(*catalog.LiveIndex)
		c.Index = w
	}), w
}

// With --hold an epoch has no shard that can't be read: a shard that is deleted after it was chosen
// and before it is linked is not in it.
func TestShardDeletedBeforeLinkingIsInNoEpoch(t *testing.T) {
	n, w := holding(t)
	n.put(t, 10, "1.txt", "2.txt", "3.txt")
	n.eventually("1.txt", "2.txt", "3.txt")
	texts := 0
	w.text = func() {
		if texts++; texts == 1 {
			require.NoError(t, os.Remove(filepath.Join(n.data, "2.txt")))
		}
	}
	e, paths := n.taken(0)
	require.Equal(t, []string{"1.txt", "3.txt"}, paths)
	require.EqualValues(t, 2, e.NewShards)
	require.Equal(t, 2, texts)
}

// A link to a file that was rewritten under a shard's name has other bytes than the epoch's.
func TestShardRewrittenBeforeLinkingIsNotInEpochInOldState(t *testing.T) {
	for _, deletedOnceMore := range []bool{false, true} {
		t.Run(fmt.Sprint("deleted once more: ", deletedOnceMore), func(t *testing.T) {
			n, w := holding(t)
			n.put(t, 10, "1.txt", "2.txt", "3.txt")
			n.eventually("1.txt", "2.txt", "3.txt")
			texts := 0
			w.text = func() {
				switch texts++; {
				case texts == 1:
					n.put(t, 11, "2.txt")
				case texts == 2 && deletedOnceMore:
					require.NoError(t, os.Remove(filepath.Join(n.data, "2.txt")))
				}
			}
			e, paths := n.taken(0)
			require.GreaterOrEqual(t, texts, 2)
			records := map[int]uint64{2: 20, 3: 31}[len(paths)] // without it, or with its current state
			require.Equal(t, records, e.Records)
			for _, path := range paths {
				_, err := n.config.Storage.Stat(t.Context(), path)
				require.NoError(t, err)
			}
		})
	}
}

// Each try finds a shard that arrived since the last one, and vanishes before it is linked.
func TestEpochWhoseShardsKeepVanishingIsAnError(t *testing.T) {
	n, w := holding(t)
	n.put(t, 10, "1.txt")
	n.eventually("1.txt")
	tries := 0
	w.shards = func() {
		name := fmt.Sprintf("new-%d.txt", tries)
		n.put(t, 10, name)
		n.eventually("1.txt", name)
	}
	w.text = func() {
		require.NoError(t, os.Remove(filepath.Join(n.data, fmt.Sprintf("new-%d.txt", tries))))
		tries++
	}
	require.EqualError(t, n.refused(0, true),
		"epoch 0 could not be started: new-2.txt was deleted or replaced before --hold could keep it: ask for the epoch again, and do not change shards that are so new")
	require.Equal(t, mostTries, tries)
	_, any := n.Latest()
	require.False(t, any)
	w.shards, w.text = nil, nil
	_, paths := n.taken(0)
	require.Equal(t, []string{"1.txt"}, paths)
}
