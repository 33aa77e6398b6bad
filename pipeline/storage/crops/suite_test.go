package crops

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// suiteBytes is the size of a crop in the suite's files.
const suiteBytes = 64

// without is a storage of cubes whose objects appear without the header and the padding of the last
// crop.
//
//	header │ crop │ crop │ … │ crop
//	       └── the file ──┘
type without struct {
	*Storage
	t     *testing.T
	sizes map[string]int64 // sizes of the files
	more  map[string]int64 // additional bytes in the cube's object
	head  map[string]int64
}

func (s *without) shorter(o storage.Object) storage.Object {
	s.more[o.Path], s.head[o.Path] = o.SizeBytes-s.sizes[o.Path], int64(len(s.cubes[o.Path].header))
	o.SizeBytes = s.sizes[o.Path]
	return o
}

func (s *without) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	if len(s.sizes) == 0 { // a dataset without arrays is a user's mistake
		require.ErrorContains(s.t, s.Storage.List(ctx, match, visit), "there is no Zarr store")
		return nil
	}
	// A hierarchy is a directory too, so cubes asks about each directory whether it is one.
	asked := func(path string, isDir bool) bool {
		_, isFile := s.sizes[path]
		return (isDir || isFile) && match(path, isDir)
	}
	return s.Storage.List(ctx, asked, func(o storage.Object) error { return visit(s.shorter(o)) })
}

func (s *without) Stat(ctx context.Context, path string) (storage.Object, error) {
	o, err := s.Storage.Stat(ctx, path)
	if err == nil {
		o = s.shorter(o)
	}
	return o, err
}

func (s *without) Submit(reads []*storage.Read) {
	below := make([]*storage.Read, len(reads))
	for i, r := range reads {
		x := *r
		switch {
		case r.OffsetBytes < 0:
		case r.OffsetBytes > r.Object.SizeBytes-int64(len(r.Buf)):
			x.OffsetBytes = 1 << 60 // the padding of the last crop is not in the file
		default:
			x.OffsetBytes += s.head[r.Object.Path]
		}
		x.Object.SizeBytes += s.more[r.Object.Path]
		x.Done = func(err error) {
			if failed, ok := errors.AsType[*storage.Error](err); ok {
				again := *failed
				again.OffsetBytes = r.OffsetBytes
				err = &again
			}
			r.Done(err)
		}
		below[i] = &x
	}
	s.Storage.Submit(below)
}

// suite makes a storage of files, each as an array of its bytes in the order of crops.
func suite(a encode.Array, memory int64) storagetest.New {
	return func(t *testing.T, files map[string][]byte) storage.Storage {
		dir := t.TempDir()
		sizes := map[string]int64{}
		for name, content := range files {
			one := a
			one.Shape = []int64{(max(int64(len(content)), 1) + suiteBytes - 1) / suiteBytes * suiteBytes}
			require.NoError(t, one.Write(filepath.Join(dir, filepath.FromSlash(name)), func(place []int64, b []byte) bool {
				if from := place[0] * one.Chunk[0]; from < int64(len(content)) {
					copy(b, content[from:])
				}
				return true
			}))
			sizes[name] = int64(len(content))
		}
		crop := []spec.DimValue{{Dim: "x", Value: suiteBytes}}
		s := Wrap(openLocal(t, dir), Config{Spec: spec.Zarr{Crop: crop}, Base: path.Base(dir), MemoryBytes: memory})
		return &without{s, t, sizes, map[string]int64{}, map[string]int64{}}
	}
}

// Hints are about crops, not about what is read below.
func TestCropsPassCapabilitiesOn(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage {
		return Wrap(below, Config{})
	}, map[string]storagetest.Passing{
		"Status":        storagetest.Passed,
		"Omitted":       storagetest.Own,
		"Parts":         storagetest.Own,
		"Outline":       storagetest.Own,
		"Check":         storagetest.Own,
		"Verifier":      storagetest.Own,
		"Hints":         storagetest.Own,
		"AdjustProfile": storagetest.Own,
	})
}

// Crops one after the other are an object like any other: every range of it can be read.
func TestGridsPassStorageSuite(t *testing.T) {
	a := encode.Array{Object: []int64{1 << 15}, Chunk: []int64{512}, Dims: []string{"x"}, DataType: "uint8", ItemBytes: 1}
	for i, codec := range encode.Codecs {
		if testing.Short() && i > 0 {
			break // with the race detector, which the codecs don't need
		}
		a.Codec = codec
		t.Run("sharded "+string(codec), func(t *testing.T) { storagetest.Run(t, suite(a, 1<<20)) })
	}
	a.IndexAtStart, a.NoChecksum = true, true
	t.Run("nothing kept", func(t *testing.T) { storagetest.Run(t, suite(a, 0)) })
}
