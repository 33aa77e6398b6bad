package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// part indexes a part of the world's dataset.
func (w *world) part(ctx context.Context, index, count int, change ...func(*Config)) (Indexed, error) {
	c := w.config()
	for _, f := range change {
		f(&c)
	}
	var opened storage.Storage
	open := c.OpenStorage
	c.OpenStorage = func(root, indexDir string) (s storage.Storage, err error) {
		opened, err = open(root, indexDir)
		return opened, err
	}
	n, err := IndexPart(ctx, c, PassPart{index, count})
	if opened != nil {
		require.NoError(w.t, opened.Close())
	}
	return n, err
}

// ofKinds writes shards of a format.
func (w *world) ofKinds(kind string, shards int) {
	for i := range shards {
		switch name := fmt.Sprintf("%02d", i); kind {
		case "tar":
			w.write(name+".tar", tarOf(5+i, "s"))
		case "jsonl.gz":
			w.write(name+".jsonl.gz", gz(linesOf(5+i, name), linesOf(3, name)))
		case "tfrecord":
			w.write(name+".tfrecord", framesOf(5+i))
		}
	}
}

// looks returns how many reads it takes to find out the format of shards when no stored index
// records it: a .tar may hold samples or games.
func looks(kind string, shards int64) int64 {
	if kind == "tar" {
		return shards
	}
	return 0
}

// For every number of parts, in any order: each shard is read once, by its part, and the combined
// index is byte-identical to that of one pass.
func TestPartialPassesEqualFullPass(t *testing.T) {
	const shards = 5
	for _, kind := range []string{"tar", "jsonl.gz", "tfrecord"} {
		t.Run(kind, func(t *testing.T) {
			r := rand.New(rand.NewPCG(serve.Seed(t), 0))
			w := newWorld(t)
			w.ofKinds(kind, shards)
			want := w.mustOpen()
			sealed := w.sealed()
			for count := 1; count <= shards+2; count++ {
				require.NoError(t, os.RemoveAll(w.index))
				known := 0
				for _, i := range r.Perm(count) {
					n, err := w.part(t.Context(), i, count)
					require.NoError(t, err)
					of := (shards - i + count - 1) / count
					known += of
					require.Equal(t, []int{shards, of, 0, known}, []int{n.Shards, n.OfPart, n.Reused, n.Known}, "part %d of %d", i, count)
				}
				require.Empty(t, w.indexFiles("*.index"), "the parts are put together by who opens")
				var c *Catalog
				require.Equal(t, looks(kind, shards), w.readsOf(func() { c = w.mustOpen() }), "of shards that parts have read")
				require.Equal(t, want.Fingerprint(), c.Fingerprint())
				require.Equal(t, sealed, w.sealed())
				require.Empty(t, w.indexFiles("*.journal"))
			}
		})
	}
}

func TestPartialPassReadsOnlyUnknownShards(t *testing.T) {
	w := newWorld(t)
	w.ofKinds("tfrecord", 6)
	_, err := w.part(t.Context(), 1, 3)
	require.NoError(t, err)
	var n Indexed
	require.Zero(t, w.readsOf(func() { n, err = w.part(t.Context(), 1, 3) }), "it is done")
	require.NoError(t, err)
	require.Equal(t, 2, n.Reused)
	require.EqualValues(t, 5+1+5+4, n.Records)

	w.write("01.tfrecord", framesOf(50))
	n, err = w.part(t.Context(), 1, 3)
	require.NoError(t, err)
	require.Equal(t, []int{2, 1, 2}, []int{n.OfPart, n.Reused, n.Known})
	require.EqualValues(t, 50+5+4, n.Records)
	n, err = w.part(t.Context(), 1, 6) // another division
	require.NoError(t, err)
	require.Equal(t, []int{1, 1, 2}, []int{n.OfPart, n.Reused, n.Known})

	c := w.mustOpen() // which indexes the rest itself
	require.EqualValues(t, 5+50+7+8+9+10, c.Records())
	require.Zero(t, w.readsOf(func() { n, err = w.part(t.Context(), 0, 2) }), "all is stored")
	require.NoError(t, err)
	require.Equal(t, []int{6, 3, 3, 6}, []int{n.Shards, n.OfPart, n.Reused, n.Known})
}

func TestPartialPassesRunConcurrentlyAndAlongsideMount(t *testing.T) {
	const shards, count = 24, 6
	w := newWorld(t)
	w.ofKinds("jsonl.gz", shards)
	want := w.mustOpen()
	require.NoError(t, os.RemoveAll(w.index))
	var g errgroup.Group
	for i := range 2 * count { // each twice
		g.Go(func() error {
			_, err := w.part(context.Background(), i%count, count)
			return err
		})
	}
	g.Go(func() error {
		c, err := w.open()
		if err != nil {
			return err
		}
		if c.Fingerprint() != want.Fingerprint() {
			return fmt.Errorf("fingerprint %s", c.Fingerprint())
		}
		return c.Close()
	})
	require.NoError(t, g.Wait())
	var c *Catalog
	require.Zero(t, w.readsOf(func() { c = w.mustOpen() }))
	require.Equal(t, want.Fingerprint(), c.Fingerprint())
}

func TestInterruptedPartialPassContinues(t *testing.T) {
	w := newWorld(t)
	w.ofKinds("tfrecord", 40)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int64
	w.onRead = func(storage.Object) error {
		if reads.Add(1) == 12 {
			cancel()
		}
		return nil
	}
	_, err := w.part(ctx, 0, 2)
	require.ErrorIs(t, err, context.Canceled)
	w.onRead = nil
	n, err := w.part(t.Context(), 0, 2)
	require.NoError(t, err)
	require.Equal(t, 20, n.OfPart)
	require.Positive(t, n.Reused)
	require.Less(t, n.Reused, 20)
	require.Equal(t, 20, n.Known)
}

func TestInvalidPartsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.ofKinds("tar", 2)
	for _, p := range [][2]int{{0, 0}, {-1, 2}, {2, 2}, {5, 2}} {
		_, err := w.part(t.Context(), p[0], p[1])
		require.ErrorContains(t, err, fmt.Sprintf("part %d of %d does not exist: parts are numbered from 0", p[0], p[1]))
	}
	_, err := w.part(t.Context(), 0, 2, func(c *Config) { c.Rebuild = true })
	require.ErrorContains(t, err, "a part can't be rebuilt")
	// A file is not a directory, for root either.
	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = w.part(t.Context(), 0, 2, func(c *Config) { c.IndexDir = file })
	require.ErrorContains(t, err, "the part could not be stored")
	w.write("00.tar", []byte("damaged"))
	_, err = w.part(t.Context(), 0, 2)
	require.ErrorContains(t, err, "00.tar")
	_, err = w.part(t.Context(), 1, 2)
	require.NoError(t, err, "it is another part's")
}
