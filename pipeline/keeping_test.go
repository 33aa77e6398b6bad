package pipeline

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// keptSpec spools compressed shards into a disk cache.
func keptSpec(t *testing.T, dataset string) spec.Spec {
	s := testSpec(t, dataset)
	s.MemoryBytes, s.Read, s.Order.Shuffle = 1<<20, spec.ReadSpool, spec.ShuffleFull
	s.SpoolDir = t.TempDir()
	s.Cache = spec.Cache{Dir: filepath.Join(t.TempDir(), "cache"), SizeBytes: 1 << 30, Fill: spec.FillOff}
	return s
}

// decodedAndFound reads an epoch twice over, and returns how many shards were decoded for it
// and how many were found.
func decodedAndFound(t *testing.T, s spec.Spec, want []string) (decoded, found uint64) {
	t.Helper()
	d := openClosing(t, s)
	require.Equal(t, want, sums(t, d, s, nil))
	x := d.Status().Fetch.Spool
	require.NotNil(t, x)
	require.Equal(t, s.Cache.Dir, x.Dir)
	require.NoError(t, d.Close())
	return x.Decoded, x.Found
}

var keptShapes = map[string]synthetic.Shape{
	"tar.gz":    {Format: "tar", Codec: "gz", RecordBytes: 4096},
	"jsonl.zst": {Format: "jsonl", Codec: "zst"},
}

// A dataset on a disk, and one at a server: what one mount has decoded, the next one reads.
func TestDecodedShardsAreReadByTheNextMount(t *testing.T) {
	for name, shape := range keptShapes {
		t.Run(name, func(t *testing.T) {
			w := serveShards(t, shape, 60)
			for _, dataset := range []string{w.dir, w.url} {
				s := keptSpec(t, dataset)
				plain := testSpec(t, w.dir)
				plain.Order.Shuffle = s.Order.Shuffle
				want := sums(t, open(t, plain), plain, nil)
				decoded, found := decodedAndFound(t, s, want)
				require.EqualValues(t, servedShards, decoded)
				require.Zero(t, found)
				decoded, found = decodedAndFound(t, s, want)
				require.Zero(t, decoded)
				require.EqualValues(t, servedShards, found)

				// Another order reads the same decoded shards.
				s.Order.Shuffle = spec.ShuffleReservoir
				plain.Order.Shuffle = s.Order.Shuffle
				decoded, _ = decodedAndFound(t, s, sums(t, open(t, plain), plain, nil))
				require.Zero(t, decoded)

				requireKeptObjects(t, s.Cache.Dir)
			}
		})
	}
}

// requireKeptObjects demands that all decoded objects of a cache are whole and right.
func requireKeptObjects(t *testing.T, dir string) {
	t.Helper()
	d, err := diskcache.OpenDirectory(dir, nil)
	require.NoError(t, err)
	defer d.Close()
	objects := 0
	require.NoError(t, d.List(t.Context(), func(e diskcache.Entry) error {
		if e.Decoded {
			objects++
			require.True(t, e.Whole(), e.URL)
			require.True(t, e.Exact())
		}
		return nil
	}))
	require.Equal(t, servedShards, objects)
	require.NoError(t, d.Verify(t.Context(), false, func(c diskcache.Checked) error {
		require.Zero(t, c.BadPages)
		return nil
	}))
}

// Mounts at a time decode each shard once between them.
func TestMountsTogetherDecodeEachShardOnce(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 300)
	s := keptSpec(t, w.dir)
	plain := testSpec(t, w.dir)
	plain.Order.Shuffle = s.Order.Shuffle
	want := sums(t, open(t, plain), plain, nil)
	var datasets []*Dataset
	for range 3 {
		own := s
		own.IndexDir, own.SpoolDir = t.TempDir(), t.TempDir()
		datasets = append(datasets, openClosing(t, own))
	}
	var readers sync.WaitGroup
	for _, d := range datasets {
		readers.Go(func() {
			if got := sums(t, d, s, nil); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Error("other bytes")
			}
		})
	}
	readers.Wait()
	decoded := uint64(0)
	for _, d := range datasets {
		decoded += d.Status().Fetch.Spool.Decoded
		require.NoError(t, d.Close())
	}
	require.EqualValues(t, servedShards, decoded)
	requireKeptObjects(t, s.Cache.Dir)
}

// A shard that was replaced is another one, even if it has the same name and size.
func TestADecodedShardOfAnotherVersionIsNotUsed(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 60)
	for _, dataset := range []string{w.dir, w.url} {
		s := keptSpec(t, dataset)
		plain := testSpec(t, w.dir)
		plain.Order.Shuffle = s.Order.Shuffle
		sumsOf := func() []string { return sums(t, open(t, plain), plain, nil) }
		decodedAndFound(t, s, sumsOf())

		// The second shard takes the first one's bytes, and then its own again.
		path := filepath.Join(w.dir, w.names[1])
		own, err := os.ReadFile(path)
		require.NoError(t, err)
		other, err := os.ReadFile(filepath.Join(w.dir, w.names[0]))
		require.NoError(t, err)
		for _, content := range [][]byte{other, own} {
			require.NoError(t, os.WriteFile(path, content, 0o644))
			w.server.PutBytes("train/"+w.names[1], content)
			decoded, found := decodedAndFound(t, s, sumsOf())
			if dataset == w.url && bytes.Equal(content, own) {
				continue // a server that goes by content has the first version again
			}
			require.EqualValues(t, 1, decoded)
			require.EqualValues(t, servedShards-1, found)
		}
	}
}

// A byte that is another on the disk is noticed by the mount that reads it: the shard is
// decoded anew, and what is then on the disk is right.
func TestADecodedShardThatIsDamagedOnItsDiskIsDecodedAnew(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 60)
	s := keptSpec(t, w.dir)
	plain := testSpec(t, w.dir)
	plain.Order.Shuffle = s.Order.Shuffle
	want := sums(t, open(t, plain), plain, nil)
	decodedAndFound(t, s, want)
	damageKept(t, s.Cache.Dir)
	decoded, found := decodedAndFound(t, s, want)
	require.EqualValues(t, servedShards, decoded)
	require.EqualValues(t, servedShards, found)
	requireKeptObjects(t, s.Cache.Dir)
}

// A cache that is too small for what the order reads at a time leaves it to the spool.
func TestDecodedShardsThatTheCacheHasNoRoomForGoToTheSpool(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 60)
	s := keptSpec(t, w.dir)
	s.Cache.SizeBytes = 100 << 10
	plain := testSpec(t, w.dir)
	plain.Order.Shuffle = s.Order.Shuffle
	d := open(t, s)
	require.Equal(t, sums(t, open(t, plain), plain, nil), sums(t, d, s, nil))
	require.Equal(t, s.SpoolDir, d.Status().Fetch.Spool.Dir)
}

// Epochs that need some shards at a time keep to a cache that holds no more than these.
func TestDecodedShardsKeepToTheSizeOfTheCache(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 60)
	s := keptSpec(t, w.dir)
	s.Order.Shuffle, s.Cache.SizeBytes = spec.ShuffleNone, 600<<10
	s.Deal.Workers = 1
	plain := testSpec(t, w.dir)
	plain.Order.Shuffle, plain.Deal.Workers = s.Order.Shuffle, 1
	want := sums(t, open(t, plain), plain, nil)
	for range 3 {
		d := openClosing(t, s)
		require.Equal(t, want, sums(t, d, s, nil))
		require.Equal(t, s.Cache.Dir, d.Status().Fetch.Spool.Dir)
		require.NoError(t, d.Close())
		size := int64(0)
		dir, err := diskcache.OpenDirectory(s.Cache.Dir, nil)
		require.NoError(t, err)
		require.NoError(t, dir.List(t.Context(), func(e diskcache.Entry) error { size += e.BlocksBytes; return nil }))
		require.NoError(t, dir.Close())
		require.LessOrEqual(t, size, s.Cache.SizeBytes)
		require.Positive(t, size)
	}
}

// Once all shards are in the cache, decoded, they are read as if they were not compressed: what a
// disk has lost of them since then is decoded again, and is then on the disk again.
func TestShardsThatAreAllDecodedAreReadAsIfTheyWereNotCompressed(t *testing.T) {
	for name, shape := range keptShapes {
		t.Run(name, func(t *testing.T) {
			w := serveShards(t, shape, 60)
			for _, dataset := range []string{w.dir, w.url} {
				s := keptSpec(t, dataset)
				plain := testSpec(t, w.dir)
				plain.Order.Shuffle = s.Order.Shuffle
				want := sums(t, open(t, plain), plain, nil)
				decodedAndFound(t, s, want)

				s.Read = spec.ReadAuto
				readPlain := func(want []string) (badPages uint64) {
					t.Helper()
					d := openClosing(t, s)
					require.Equal(t, want, sums(t, d, s, nil))
					st := d.Status().Fetch
					require.Nil(t, st.Spool)
					require.Zero(t, st.DecodedBytes)
					require.Contains(t, st.Reason, "in the disk cache, decoded")
					require.Zero(t, st.Errors, st.LastErrors)
					badPages = d.Status().Cache.BadPages
					require.NoError(t, d.Close())
					return badPages
				}
				require.Zero(t, readPlain(want))
				d := openClosing(t, s)
				f := forecast(t, d, 0, 1<<60).Storages[0]
				require.NoError(t, d.Close())
				require.Contains(t, f.Reason, "in the disk cache, decoded")
				require.Nil(t, f.Spool)
				require.Zero(t, f.Scan.Compressed)
				damageKept(t, s.Cache.Dir)
				require.NotZero(t, readPlain(want))
				// A page between two bad ones may be decoded together with them, and is then not
				// read from the disk: a later mount finds it. Each repairs what it finds.
				for repaired := 1; readPlain(want) > 0; repaired++ {
					require.Less(t, repaired, servedShards*damagedPages)
				}
				requireKeptObjects(t, s.Cache.Dir)

				for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleNone} {
					s.Order.Shuffle, plain.Order.Shuffle = shuffle, shuffle
					require.Zero(t, readPlain(sums(t, open(t, plain), plain, nil)))
				}

				// A shard of another version is not there.
				path := filepath.Join(w.dir, w.names[1])
				other, err := os.ReadFile(filepath.Join(w.dir, w.names[0]))
				require.NoError(t, err)
				own, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, other, 0o644))
				w.server.PutBytes("train/"+w.names[1], other)
				d = openClosing(t, s)
				require.Equal(t, sums(t, open(t, plain), plain, nil), sums(t, d, s, nil))
				require.NotContains(t, d.Status().Fetch.Reason, "in the disk cache, decoded")
				require.NoError(t, d.Close())
				require.NoError(t, os.WriteFile(path, own, 0o644))
				w.server.PutBytes("train/"+w.names[1], own)
			}
		})
	}
}

// Shards that would be scanned, and decoded again in each epoch, are decoded once to a cache that
// the user asked for, if it has room for all of them; then the next mount reads them as if they were
// not compressed. Forecasts know it.
func TestShardsThatWouldBeDecodedInEachEpochAreKeptInACacheThatTheUserAskedFor(t *testing.T) {
	w := serveShards(t, keptShapes["tar.gz"], 300)
	plain := testSpec(t, w.dir)
	plain.Order.Shuffle, plain.Deal.Workers = spec.ShuffleNone, 1
	want := sums(t, open(t, plain), plain, nil)
	// look reads all of a mount, and requires that its forecast was right.
	look := func(s spec.Spec) read.Stats {
		t.Helper()
		d := openClosing(t, s)
		f := forecast(t, d, 0, 1<<60).Storages[0]
		require.Equal(t, want, sums(t, d, s, nil))
		got := d.Status().Fetch
		require.NoError(t, d.Close())
		require.Equal(t, f.Reason, got.Reason)
		require.Equal(t, f.Spool != nil, got.Spool != nil)
		if f.Spool != nil {
			require.Equal(t, f.Spool.Shards, got.Spool.Decoded)
			require.EqualValues(t, f.Spool.DecodedBytes, got.DecodedBytes)
		}
		return got
	}
	for name, dataset := range map[string]string{"directory": w.dir, "server": w.url} {
		t.Run(name, func(t *testing.T) {
			asked := keptSpec(t, dataset)
			asked.Read, asked.Order.Shuffle, asked.Deal.Workers = spec.ReadAuto, spec.ShuffleNone, 1
			for name, c := range map[string]spec.Cache{
				"no cache":                 {Off: true, Fill: spec.FillOff},
				"too small for all shards": {Dir: filepath.Join(t.TempDir(), "cache"), SizeBytes: 3 << 20, Fill: spec.FillOff},
			} {
				s := asked
				s.Cache = c
				require.Nil(t, look(s).Spool, name)
			}
			asked.SpoolMaxBytes = 1 // which does not bound a cache
			first := look(asked)
			require.Contains(t, first.Reason, "the disk cache keeps the 4 compressed shards decoded")
			require.Equal(t, asked.Cache.Dir, first.Spool.Dir)
			require.EqualValues(t, servedShards, first.Spool.Decoded)
			requireKeptObjects(t, asked.Cache.Dir)
			second := look(asked)
			require.Contains(t, second.Reason, "in the disk cache, decoded")
			require.Zero(t, second.DecodedBytes)
		})
	}
}

// damageKept changes a byte of each decoded shard, and loses pages of it.
func damageKept(t *testing.T, dir string) {
	t.Helper()
	d, err := diskcache.OpenDirectory(dir, nil)
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.List(t.Context(), func(e diskcache.Entry) error {
		if !e.Decoded {
			return nil
		}
		f, err := os.OpenFile(filepath.Join(dir, "v1", e.Name[:2], e.Name+".data"), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		var one [1]byte
		_, err = f.ReadAt(one[:], 5000)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{one[0] ^ 4}, 5000)
		require.NoError(t, err)
		_, err = f.WriteAt(make([]byte, (damagedPages-1)*4096), 8*4096)
		return err
	}))
}

// damagedPages is the number of pages of each object that damageKept changes.
const damagedPages = 6

// The fill in the background requests nothing from the server of what is decoded in the cache
// already, neither for a dataset nor for a source of a mixture.
func TestTheFillRequestsNoShardThatIsDecodedInTheCache(t *testing.T) {
	w := serveShards(t, keptShapes["jsonl.zst"], 60)
	for name, s := range map[string]spec.Spec{"dataset": keptSpec(t, w.url), "source": keptSpec(t, "")} {
		t.Run(name, func(t *testing.T) {
			if name == "source" {
				other := serveShards(t, keptShapes["jsonl.zst"], 60)
				s.Mix.Sources = []spec.Source{{Name: "one", Weight: 1_000_000, Dataset: w.url}, {Name: "two", Weight: 1_000_000, Dataset: other.dir}}
			}
			d := openClosing(t, s)
			want := sums(t, d, s, nil)
			require.NoError(t, d.Close())
			dropCompressed(t, s.Cache.Dir)

			s.Read, s.Cache.Fill = spec.ReadAuto, spec.FillAuto
			d = openClosing(t, s)
			before := len(w.server.Log())
			require.Equal(t, want, sums(t, d, s, nil))
			cache := d.mount.leaves()[0].cache
			cache.PauseFill(false) // a mixture reads decoded shards through another cache, so this one has not been read
			require.Eventually(t, func() bool { return cache.Stats().Fill == 1 }, time.Minute, time.Millisecond)
			require.Len(t, w.server.Log(), before)
			require.NoError(t, d.Close())
		})
	}
}

// dropCompressed removes all objects of a cache that are not decoded ones.
func dropCompressed(t *testing.T, dir string) {
	t.Helper()
	d, err := diskcache.OpenDirectory(dir, nil)
	require.NoError(t, err)
	defer d.Close()
	var names []string
	require.NoError(t, d.List(t.Context(), func(e diskcache.Entry) error {
		if !e.Decoded {
			names = append(names, e.Name)
		}
		return nil
	}))
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NoError(t, d.Drop(name))
	}
}
