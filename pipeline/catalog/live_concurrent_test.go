package catalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestClosedLiveIndexReturns(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for i := range 20 {
		w.write(fmt.Sprintf("%d.tar", i), tarOf(10+i, "s"))
	}
	for _, end := range []string{"context", "close"} {
		s, err := w.openLive(func(c *Config) { c.Format.Name = "tar" })
		require.NoError(t, err)
		files := w.files(s)
		ctx, cancel := context.WithCancel(context.Background())
		var once sync.Once
		done := make(chan struct{})
		w.onRead = func(storage.Object) error {
			once.Do(func() {
				if end == "context" {
					cancel()
					close(done)
					return
				}
				go func() { defer close(done); _ = s.Close() }()
				<-s.closing.Done()
			})
			return nil
		}
		err = s.Index(ctx, files)
		require.ErrorIs(t, err, map[string]error{"context": context.Canceled, "close": errLiveIndexClosed}[end])
		<-done
		w.onRead = nil
		if end == "context" {
			require.NoError(t, s.Index(context.Background(), files))
			require.Len(t, s.Shards(), 20)
		}
		cancel()
		require.NoError(t, s.Close())
		require.NoError(t, os.RemoveAll(w.index))
	}
}

// While a read from a disk hangs, all other calls return.
func TestAnswersDoNotWaitForReads(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.tar", tarOf(10, "a"))
	w.write("b.tar", tarOf(11, "b"))
	s := w.mustOpenLiveIndex(func(c *Config) { c.Format.Name = "tar" })
	require.NoError(t, s.Index(context.Background(), []storage.Object{w.object("a.tar")}))
	begun, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.onRead = func(storage.Object) error {
		once.Do(func() { close(begun) })
		<-release
		return nil
	}
	b := w.object("b.tar")
	ended := make(chan error)
	go func() { ended <- s.Index(context.Background(), []storage.Object{b}) }()
	<-begun
	require.False(t, s.Has(b))
	require.Len(t, s.Shards(), 1)
	require.EqualValues(t, 10, w.mustSeal(s, s.Shards()).Records())
	require.Equal(t, 1, s.Counts().Shards)
	require.Empty(t, s.Waiting())
	s.Due(w.clock())
	s.Forget("a.tar")
	require.Empty(t, s.Shards())
	close(release)
	require.NoError(t, <-ended)
	require.Equal(t, []string{"b.tar"}, pathsOf(s.Shards()))
}

func TestLiveIndexIsSafeForConcurrentUse(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	s := w.mustOpenLiveIndex()
	var all sync.WaitGroup
	ctx := context.Background()
	for i := range 4 {
		all.Go(func() {
			for n := range 15 {
				path := fmt.Sprintf("%d-%d.jsonl.gz", i, n%3)
				full := filepath.Join(w.data, path)
				if err := os.WriteFile(full+".tmp", gz(linesOf(3+n, path)), 0o644); err != nil {
					t.Error(err)
				}
				if err := os.Rename(full+".tmp", full); err != nil {
					t.Error(err)
				}
				o, err := w.storage.Stat(ctx, path)
				if err == nil {
					err = s.Index(ctx, []storage.Object{o})
				}
				if err != nil {
					t.Error(err)
				}
				if !s.Has(o) {
					t.Errorf("%s is not known", path)
				}
				shards := s.Shards()
				if text, err := s.Text(shards); err != nil {
					t.Error(err)
				} else if c, err := s.Seal(ctx, text); err == nil {
					if c.Shards() != len(shards) {
						t.Errorf("%d shards of %d", c.Shards(), len(shards))
					}
					_ = c.Close()
				} else if !errors.As(err, new(*DiffersError)) && !errors.As(err, new(*LackingError)) {
					t.Error(err) // other goroutines index shards anew, and forget some
				}
				s.Due(w.clock())
				s.Waiting()
				s.Counts()
				s.Kind()
				if n%5 == 4 {
					s.Forget(path)
				}
			}
		})
	}
	all.Wait()
	w.look(s)
	require.Len(t, s.Shards(), 12)
}
