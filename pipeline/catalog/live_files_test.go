package catalog

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A truncated file is a shard only if a mount accepts it, too: then nothing shows that data is
// missing. Formats that mark their end never accept such files.
func TestPartiallyWrittenFileIsNotAShard(t *testing.T) {
	samples := tarOf(6, "s")
	for _, tt := range []struct {
		name      string
		data      []byte
		ends      bool // every truncation is detected
		mostWhole int  // how many truncations at most look whole: between records, and in the zeros of an end
		format    string
	}{
		{"a.tar", samples, false, 8, "tar"},
		{"a.tar.gz", gz(samples), true, 0, "tar"},
		{"a.tgz", gz(samples[:2048], samples[2048:]), false, 1, "tar"},
		{"a.jsonl", linesOf(12, "x"), false, 24, "jsonl"},
		{"a.jsonl.gz", gz(linesOf(12, "x")), true, 0, "jsonl"},
		{"a.jsonl.zst", zst(linesOf(40, "x")), true, 0, "jsonl"},
		{"a.tfrecord", framesOf(9), false, 9, "tfrecord"},
		{"a.npy", rowsOf(20, "'<i2'"), true, 0, "npy"},
		{"a.gz", gz(gameOf(6, 2)), true, 0, "lc0"},
		{"a.tar", gamesOf(gz(gameOf(6, 1)), gz(gameOf(6, 2))), false, 20, "lc0"},
	} {
		t.Run(tt.format+" "+tt.name, func(t *testing.T) {
			w := newLiveWorld(newWorld(t))
			format := func(c *Config) { c.Format.Name = tt.format }
			s := w.mustOpenLiveIndex(format)
			admitted := 0
			step := max(1, len(tt.data)/97)
			for n := 1; n < len(tt.data); n += step {
				w.replace(tt.name, tt.data[:n])
				w.look(s)
				whole := s.Counts().Shards == 1
				require.Equal(t, !whole, s.Counts().Waiting == 1, "%d of %d bytes", n, len(tt.data))
				if whole {
					admitted++
					require.False(t, tt.ends, "%d of %d bytes", n, len(tt.data))
					w.static(map[string][]byte{tt.name: tt.data[:n]}, format)
				}
			}
			require.LessOrEqual(t, admitted, tt.mostWhole)
			w.replace(tt.name, tt.data)
			w.look(s)
			require.Equal(t, 1, s.Counts().Shards)
			require.Empty(t, s.Waiting())
			requireSame(t, w.static(map[string][]byte{tt.name: tt.data}, format), w.mustSeal(s, s.Shards()))
		})
	}
}

func TestDamagedFileIsRetriedOccasionally(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.jsonl.gz", gz(linesOf(3, "a")))
	data := gz(linesOf(5, "b"), linesOf(6, "c"))
	w.write("b.jsonl.gz", data[:len(data)-3])
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Equal(t, []string{"a.jsonl.gz"}, pathsOf(s.Shards()))
	waiting := s.Waiting()
	require.Equal(t, []string{"b.jsonl.gz"}, waitingPaths(s))
	require.Contains(t, waiting[0].Reason, "the file ends inside")
	require.True(t, s.Has(w.object("b.jsonl.gz")))
	for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		due, next := s.Due(w.clock())
		require.Empty(t, due)
		require.Equal(t, w.clock().Add(minutes*time.Minute), next)
		require.Zero(t, w.readsOf(func() { w.look(s) }), "it is not read before")
		w.advance(minutes * time.Minute)
		due, next = s.Due(w.clock())
		require.Len(t, due, 1)
		require.True(t, next.IsZero())
		require.Positive(t, w.readsOf(func() { require.NoError(t, s.Index(context.Background(), due)) }))
	}
	require.Equal(t, 1, w.log.count("can't be used yet"), "it is named once")
	w.replace("b.jsonl.gz", data)
	w.look(s)
	require.Len(t, s.Shards(), 2)
	require.Empty(t, s.Waiting())
}

func TestPersistentDamageIsSkippedIfConfigured(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	whole := gz(linesOf(5, "b"), linesOf(6, "c"))
	w.write("b.jsonl.gz", whole[:len(whole)-3])
	s, err := w.openLive(skipping)
	require.NoError(t, err)
	w.look(s)
	require.Empty(t, s.Shards())
	var minutes []time.Duration
	began := w.clock()
	for len(s.Shards()) == 0 {
		_, next := s.Due(w.clock())
		w.advance(next.Sub(w.clock()))
		minutes = append(minutes, w.clock().Sub(began)/time.Minute)
		w.look(s)
	}
	require.Equal(t, []time.Duration{1, 3, 7, 10}, minutes)
	require.Empty(t, s.Waiting())
	c := w.mustSeal(s, s.Shards())
	require.EqualValues(t, 5, c.Records())
	require.Len(t, c.Damaged(), 1)
	requireSame(t, w.static(map[string][]byte{"b.jsonl.gz": whole[:len(whole)-3]}, skipping), c)

	require.NoError(t, s.Close())
	w.advance(time.Minute)
	s = w.mustOpenLiveIndex(skipping)
	require.Zero(t, w.readsOf(func() { w.look(s) }), "it was so for long enough")
	require.Len(t, s.Shards(), 1)
	require.NoError(t, s.Close())
	strict := w.mustOpenLiveIndex()
	w.look(strict)
	require.Empty(t, strict.Shards())
}

func TestUnreadableFileIsNotAnError(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.tar", tarOf(4, "a"))
	w.write("b.tar", tarOf(5, "b"))
	w.onRead = func(o storage.Object) error {
		if o.Path == "b.tar" {
			return errors.New("the disk does not want to")
		}
		return nil
	}
	for _, change := range []func(*Config){func(c *Config) { c.Format.Name = "tar" }, func(*Config) {}, skipping} {
		s := w.mustOpenLiveIndex(change)
		w.look(s)
		require.Equal(t, []string{"a.tar"}, pathsOf(s.Shards()))
		require.Equal(t, []string{"b.tar"}, waitingPaths(s))
		require.Contains(t, s.Waiting()[0].Reason, "the disk does not want to")
		w.advance(time.Hour)
		w.look(s)
		require.Len(t, s.Shards(), 1, "that it can't be read is no damage")
		require.NoError(t, s.Close())
	}
}

func TestFileChangedDuringReadIsNotIndexed(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.tar", tarOf(40, "a"))
	s := w.mustOpenLiveIndex(func(c *Config) { c.Format.Name = "tar" })
	var once bool
	w.onRead = func(storage.Object) error {
		if !once {
			once = true
			w.replace("a.tar", tarOf(41, "a"))
		}
		return nil
	}
	w.look(s)
	require.True(t, once)
	require.Empty(t, s.Shards())
	require.Equal(t, []Waiting{{Path: "a.tar", Reason: "it changed while it was being read"}}, s.Waiting())
	w.look(s)
	require.EqualValues(t, 41, s.Counts().Records)
}

func TestFileForgottenDuringReadIsNotAShard(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.tar", tarOf(40, "a"))
	s := w.mustOpenLiveIndex(func(c *Config) { c.Format.Name = "tar" })
	w.onRead = func(storage.Object) error { s.Forget("a.tar"); return nil }
	o := w.object("a.tar")
	require.NoError(t, s.Index(context.Background(), []storage.Object{o}))
	require.Empty(t, s.Shards())
	require.Zero(t, s.Counts().Waiting)
	w.onRead = nil
	require.Zero(t, w.readsOf(func() { w.look(s) }), "what was found is kept, for the case that it comes back")
	require.Len(t, s.Shards(), 1)
}

func TestFilesOfOtherFormatsAreIgnored(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("README.txt", []byte("this is no shard\n"))
	w.write("notes", []byte("nor is this\n"))
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Equal(t, "auto", s.Format().Name)
	require.Equal(t, []string{"README.txt"}, waitingPaths(s), "text may be all that there is")
	w.write("a.jsonl", linesOf(3, "a"))
	w.look(s)
	require.Equal(t, "jsonl", s.Format().Name)
	w.write("b.tar", tarOf(4, "b"))
	w.write("part-00000", linesOf(5, "c"))
	w.write("empty.jsonl", nil)
	w.look(s)
	require.Equal(t, []string{"a.jsonl", "empty.jsonl"}, pathsOf(s.Shards()))
	require.Empty(t, waitingPaths(s))
	require.Equal(t, 4, s.Counts().PassedOver)
	for _, o := range w.files(s) {
		require.True(t, s.Has(o), o.Path)
	}
	w.remove("b.tar")
	w.look(s)
	require.Equal(t, 3, s.Counts().PassedOver)
}

func TestMajorityOfFirstFilesDeterminesFormat(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.jsonl", linesOf(3, "a"))
	w.write("b.tar", tarOf(3, "b"))
	w.write("c.tar", tarOf(3, "c"))
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Equal(t, []string{"b.tar", "c.tar"}, pathsOf(s.Shards()))
	require.NoError(t, s.Close())
	s = w.mustOpenLiveIndex(func(c *Config) { c.Format.Name = "jsonl" })
	w.look(s)
	require.Equal(t, []string{"a.jsonl"}, pathsOf(s.Shards()))
	s = w.mustOpenLiveIndex(func(c *Config) { c.Format = spec.Format{Name: "fixed", RecordBytes: 1} })
	w.look(s)
	require.Len(t, s.Shards(), 3)
	require.Equal(t, "fixed 1 1 0 corrupt", s.FormatLine())
}

func TestShardsOfOtherKindWait(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("training.1.gz", gz(gameOf(6, 2)))
	w.write("training.2.gz", gz(gameOf(5, 2)))
	w.write("training.3.gz", gz(gameOf(6, 3)))
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Equal(t, "lc0", s.Format().Name)
	require.Equal(t, "version 6", s.Kind())
	require.Equal(t, []string{"training.1.gz", "training.3.gz"}, pathsOf(s.Shards()))
	require.Equal(t, []Waiting{{Path: "training.2.gz", Reason: "it has version 5, and this run's shards have version 6"}}, s.Waiting())
	require.Equal(t, 1, s.Counts().Waiting)
	requireSame(t, w.static(map[string][]byte{"training.1.gz": gz(gameOf(6, 2)), "training.3.gz": gz(gameOf(6, 3))}), w.mustSeal(s, s.Shards()))
	require.NoError(t, s.Close())

	c := LiveIndexConfig{Config: w.config(), Now: w.clock, Kind: "version 5"}
	c.OpenStorage = func(string, string) (storage.Storage, error) { return w.storage, nil }
	s, err := OpenLiveIndex(context.Background(), c)
	require.NoError(t, err)
	require.Zero(t, w.readsOf(func() { w.told = nil; w.look(s) }), "shards of other kinds are kept, too")
	require.Equal(t, []string{"training.2.gz"}, pathsOf(s.Shards()))
	require.NoError(t, s.Close())

	s = w.mustOpenLiveIndex(func(c *Config) { c.Format.As = spec.AsTensorsU1 })
	w.look(s)
	require.Len(t, s.Shards(), 3, "tensors are of games of any version")
	require.Empty(t, s.Kind())
	require.Equal(t, "versions 5, 6", w.mustSeal(s, s.Shards()).Kind())
	text, err := s.Text(s.Shards())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = w.mustOpenLiveIndex()
	w.look(s)
	_, err = s.Seal(context.Background(), text)
	require.ErrorContains(t, err, "training.1.gz has version 6, training.2.gz has version 5", "nobody else may say so")
}

func TestDatasetThatCannotGrowIsRefused(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	w.write("a.tar", tarOf(3, "a"))
	_, err := w.openLive(dataset(filepath.Join(w.data, "a.tar")))
	require.ErrorContains(t, err, "is a file: with --grow, name the directory")
	_, err = w.openLive(func(c *Config) { c.Format.Name = "files" })
	require.ErrorContains(t, err, "a directory is a shard")
	_, err = w.openLive(func(c *Config) { c.Format.Arrays = []spec.Array{{Name: "a", Pattern: "*.npy"}} })
	require.ErrorContains(t, err, "several arrays")
	_, err = w.openLive(dataset(filepath.Join(w.data, "none")))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoDirExists(t, w.index, "nothing was made")
}

func TestPatternSelectsShards(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	for _, name := range []string{"a/1.tar", "a/2.tar", "a/12.tar", "b/1.tar", "a/x.tar"} {
		w.write(name, tarOf(3, "s"))
	}
	s := w.mustOpenLiveIndex(dataset(filepath.Join(w.data, "a/{1..9}.tar")))
	require.Equal(t, filepath.Join(w.data, "a"), s.Root())
	for path, want := range map[string]bool{"1.tar": true, "2.tar": true, "12.tar": false, "x.tar": false, "1.tar\n": false} {
		require.Equal(t, want, s.Match(path, false), path)
	}
	require.False(t, s.Match("sub", true))
	whole := w.mustOpenLiveIndex(func(c *Config) { c.IndexDir = filepath.Join(w.data, "index") })
	require.False(t, whole.Match("index", true))
	require.True(t, whole.Match("a", true))
	require.False(t, whole.Match("a\nb.tar", false), "a snapshot's text has a line a shard")
}
