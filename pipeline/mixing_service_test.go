package pipeline

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A mixture of a source at a web server and one on a disk has the same bytes as with both on a
// disk, in every format, with and without a disk cache, with little memory and much. The second
// source is small, and comes some twenty times per epoch.
func TestASourceAtAServerBesideFilesChangesNoByte(t *testing.T) {
	memories := []int64{2 << 20, 256 << 20}
	if testing.Short() {
		memories = memories[:1]
	}
	for name, shape := range map[string]synthetic.Shape{
		"tar":      {Format: "tar", RecordBytes: 4096},
		"tar.gz":   {Format: "tar", Codec: "gz", RecordBytes: 4096},
		"jsonl":    {Format: "jsonl"},
		"tfrecord": {Format: "tfrecord"},
		"npy":      {Format: "npy"},
	} {
		if testing.Short() && name != "tar" && name != "tar.gz" {
			continue // formats differ in their bytes
		}
		t.Run(name, func(t *testing.T) {
			large, small := serveShards(t, shape, 200), serveShards(t, shape, 10)
			s := testSpec(t, "")
			s.Mix.Sources = []spec.Source{{Name: "large", Weight: 1_000_000, Dataset: large.dir}, {Name: "small", Weight: 1_500_000, Dataset: small.dir}}
			s.Order.Length = 1400
			d := open(t, s)
			require.Greater(t, d.Sources()[1].Passes, 20.0)
			want := sums(t, d, s, nil)
			for _, remote := range []string{"large", "small", "both"} {
				if testing.Short() && remote == "small" {
					continue
				}
				for _, cached := range []bool{false, true} {
					for _, memory := range memories {
						t.Run(fmt.Sprint(remote, cached, memory), func(t *testing.T) {
							s := s
							s.Mix.Sources = []spec.Source{s.Mix.Sources[0], s.Mix.Sources[1]}
							if remote != "small" {
								s.Mix.Sources[0].Dataset = large.url
							}
							if remote != "large" {
								s.Mix.Sources[1].Dataset = small.url
							}
							s.IndexDir, s.MemoryBytes = t.TempDir(), memory
							if cached {
								s.Cache.Off, s.Cache.Dir, s.Cache.SizeBytes = false, filepath.Join(t.TempDir(), "cache"), 64<<20
							}
							d := open(t, s)
							require.Equal(t, want, sums(t, d, s, nil))
							require.NotNil(t, d.Status().Sources)
							require.LessOrEqual(t, d.Status().Fetch.HeldBytes, memory+8<<20)
						})
					}
				}
			}
		})
	}
}

// Reads that suit a service don't hurt files; the other way round they do.
func TestMixtureIsReadAsSuitsItsSlowestSource(t *testing.T) {
	served := serveShards(t, synthetic.Shape{Format: "tar"}, 20)
	for _, datasets := range [][2]string{{served.url, served.dir}, {served.dir, served.url}} {
		s := testSpec(t, "")
		s.Mix.Sources = []spec.Source{{Name: "a", Weight: 1_000_000, Dataset: datasets[0]}, {Name: "b", Weight: 1_000_000, Dataset: datasets[1]}}
		s.Order.Length = 256
		d := open(t, s)
		g, release := d.acquire()
		require.Equal(t, storage.KindWeb, g.mount.profile.Kind)
		release()
	}
}

// Every format that can be on a disk is mixed: the bytes do not depend on memory or strategy, and
// repeated records that follow each other in a tar differ in their names.
func TestMixturesOfEveryFormat(t *testing.T) {
	memories := []int64{1 << 20, 256 << 20}
	if testing.Short() {
		memories = memories[:1]
	}
	for name, shape := range map[string]synthetic.Shape{
		"tar":        {Format: "tar", RecordBytes: 4096},
		"tar.zst":    {Format: "tar", Codec: "zst", RecordBytes: 4096},
		"lc0":        {Format: "lc0", Codec: "gz"},
		"lc0.tar":    {Format: "lc0", Codec: "tar"},
		"lc0tensors": {Format: "lc0", Codec: "gz"},
		"npy":        {Format: "npy"},
	} {
		if testing.Short() && name != "tar.zst" && name != "lc0" {
			continue // formats differ in their bytes
		}
		t.Run(name, func(t *testing.T) {
			if shape.Format == "lc0" {
				shape.RecordBytes = synthetic.FrameBytes
			}
			large, small := serveShards(t, shape, 60), serveShards(t, shape, 1)
			s := testSpec(t, "")
			s.Mix.Sources = []spec.Source{{Name: "large", Weight: 1_000_000, Dataset: large.dir}, {Name: "small", Weight: 9_000_000, Dataset: small.dir}}
			s.Order.Length = 700
			if name == "lc0tensors" {
				s.Format.As = "tensors:u1"
			}
			var want []string
			for _, read := range []spec.Read{spec.ReadScan, spec.ReadGather, spec.ReadSpool, spec.ReadAuto} {
				for _, memory := range memories {
					s.Read, s.MemoryBytes, s.SpoolDir = read, memory, t.TempDir()
					d := open(t, s)
					got := sums(t, d, s, nil)
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "%s in %d bytes", read, memory)
				}
			}
		})
	}
}

// --warm fills the caches of all sources that have one: afterwards an epoch requests nothing from
// the servers, and files on a disk are not cached.
func TestWarmFillsCachesOfMixture(t *testing.T) {
	shape := synthetic.Shape{Format: "tar", RecordBytes: 4096}
	a, b, c := serveShards(t, shape, 40), serveShards(t, shape, 30), serveShards(t, shape, 20)
	s := testSpec(t, "")
	s.Mix.Sources = []spec.Source{
		{Name: "web", Weight: 1_000_000, Dataset: a.url}, {Name: "we", Weight: 1_000_000, Dataset: b.url}, {Name: "disk", Weight: 1_000_000, Dataset: c.dir},
	}
	s.Order.Length = 120
	s.Cache.Off, s.Cache.Warm, s.Cache.Dir = false, true, filepath.Join(t.TempDir(), "cache")
	s.Cache.SizeBytes, s.Cache.ReserveBytes = 64<<20, 0 // however full the disk is
	d := open(t, s)
	var done, total int64
	require.NoError(t, d.Warm(t.Context(), func(d, t int64) { done, total = d, t }))
	require.Positive(t, total)
	require.Equal(t, total, done)
	asked := func() (n uint64) {
		for _, x := range d.Status().Sources {
			if x.Remote != nil {
				for _, count := range x.Remote.Requests {
					n += count
				}
			}
		}
		return n
	}
	before := asked()
	require.Positive(t, before)
	sums(t, d, s, nil)
	require.Equal(t, before, asked())

	none := s
	none.Mix.Sources = []spec.Source{{Name: "x", Weight: 1, Dataset: a.dir}, {Name: "y", Weight: 1, Dataset: c.dir}}
	require.ErrorIs(t, open(t, none).Warm(t.Context(), func(int64, int64) {}), ErrNoCache)
}
