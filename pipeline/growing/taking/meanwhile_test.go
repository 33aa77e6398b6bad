package taking

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/held"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// watchedStock is a stock whose calls of interest begin with a function of the test.
type watchedStock struct {
	*catalog.Stock
	match  func(path string) bool
	index  func(files []storage.Object)
	forget func(path string)
	text   func()
	shards func()
}

func (s *watchedStock) Shards() []growing.Shard {
	if s.shards != nil {
		s.shards()
	}
	return s.Stock.Shards()
}

func (s *watchedStock) Match(path string, isDir bool) bool {
	return s.Stock.Match(path, isDir) && (s.match == nil || s.match(path))
}

func (s *watchedStock) Index(ctx context.Context, files []storage.Object) error {
	if s.index != nil {
		s.index(files)
	}
	return s.Stock.Index(ctx, files)
}

func (s *watchedStock) Forget(path string) {
	if s.forget != nil {
		s.forget(path)
	}
	s.Stock.Forget(path)
}

func (s *watchedStock) Text(shards []growing.Shard) ([]byte, error) {
	if s.text != nil {
		s.text()
	}
	return s.Stock.Text(shards)
}

// lateFile is a node whose looker does not see 2.txt, which epoch 0 has, taken by another one:
// the test says when it is seen.
func lateFile(t *testing.T) (*node, *watchedStock) {
	here := newPlace(t)
	n := open(t, here)
	n.put(t, 10, "1.txt", "2.txt")
	n.eventually("1.txt", "2.txt")
	n.taken(0)
	there := newPlace(t)
	there.run = here.run
	there.put(t, 10, "1.txt", "2.txt")
	w := &watchedStock{match: func(path string) bool { return path != "2.txt" }}
	other := open(t, there, func(c *Config) {
		w.Stock = c.Stock.(*catalog.Stock)
		c.Stock = w
	})
	other.eventually("1.txt")
	return other, w
}

// seen tells the queue of a file as the looker does.
func (n *node) seen(path string) {
	o, err := n.stat(context.Background(), path)
	require.NoError(n.t, err)
	n.queue.add(o)
}

// A file that was indexed because a snapshot has it is forgotten until it is settled. If it
// settles at that very moment it must not be: nobody would tell of it again.
func TestAFileThatSettlesWhileItIsForgottenStays(t *testing.T) {
	n, w := lateFile(t)
	forgotten, told := false, false
	w.forget = func(path string) {
		if path != "2.txt" || forgotten {
			return
		}
		forgotten = true
		if n.queue.mu.TryLock() { // nothing keeps the looker from telling of it now
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

// A file may be written anew between the look at it, for a snapshot that has it, and its
// indexing. What was seen of it last has to win.
func TestAFileThatChangesWhileASnapshotWantsItIsIndexedAsItIs(t *testing.T) {
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
		if len(n.indexing) == 0 { // nothing keeps it from being indexed now
			require.NoError(t, n.indexed(context.Background()))
		}
		close(changed)
	}
	any, err := n.indexPaths(t.Context(), []string{"2.txt"}, map[string]bool{})
	require.NoError(t, err)
	require.True(t, any)
	<-changed
	n.eventually("1.txt", "2.txt")
	for _, s := range n.stock.Shards() {
		require.EqualValues(t, map[string]int{"1.txt": 10, "2.txt": 11}[s.Path], s.Records)
	}
}

// holding opens a node that makes links.
func holding(t *testing.T) (*node, *watchedStock) {
	p := newPlace(t)
	w := &watchedStock{}
	return open(t, p, func(c *Config) {
		c.Hold = held.NewLinks(p.data)
		c.Storage = held.Over(c.Storage.(*local.Storage), c.Hold)
		w.Stock = c.Stock.(*catalog.Stock)
		c.Stock = w
	}), w
}

// With --hold an epoch has no shard that can't be read: what is deleted while it is taken, after
// it was chosen and before it has a link, is not in it.
func TestAShardThatIsDeletedBeforeItIsHeldIsInNoEpoch(t *testing.T) {
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

// A link to what was written anew under a shard's name holds other bytes than the epoch is of.
func TestAShardThatIsWrittenAnewBeforeItIsHeldIsNotInTheEpochAsItWas(t *testing.T) {
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
			records := map[int]uint64{2: 20, 3: 31}[len(paths)] // without it, or as it is now
			require.Equal(t, records, e.Records)
			for _, path := range paths {
				_, err := n.config.Storage.Stat(t.Context(), path)
				require.NoError(t, err)
			}
		})
	}
}

// Each try finds a shard that came since the last one, and that goes before it has a link.
func TestAnEpochWhoseShardsGoAgainAndAgainIsAnError(t *testing.T) {
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
		"epoch 0 is not taken: new-2.txt was deleted or replaced before --hold could keep it: ask for the epoch again, and do not change shards that are so new")
	require.Equal(t, mostTries, tries)
	_, any := n.Latest()
	require.False(t, any)
	w.shards, w.text = nil, nil
	_, paths := n.taken(0)
	require.Equal(t, []string{"1.txt"}, paths)
}
