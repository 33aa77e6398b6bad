package diskcache

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// TestModel does anything to a cache in any order, with up to three mounts at a time, and compares
// all that is read with the contents of the dataset.
func TestModel(t *testing.T) {
	files := map[string][]byte{"empty": nil, "one": random(1, 1), "page": random(2, 4096), "some": random(3, 70_001), "large": random(4, 900_013)}
	paths := []string{"one", "page", "some", "large"}
	w := newWorld(t, files)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		dir := filepath.Join(t.TempDir(), fmt.Sprint(round))
		var open []*Storage
		defer func() {
			for _, s := range open {
				require.NoError(rt, s.Close())
			}
		}()
		mount := func() {
			c := w.config()
			c.Dir, c.noSeals = dir, rapid.Bool().Draw(rt, "without seals")
			c.BoundBytes = rapid.SampledFrom([]int64{1 << 30, 600_000, 100_000, 1}).Draw(rt, "bound")
			c.ShareBytes = c.BoundBytes / rapid.SampledFrom([]int64{1, 2, 1 << 40}).Draw(rt, "share")
			c.MaxReadBytes = rapid.SampledFrom([]int64{4096, 64 << 10, 8 << 20}).Draw(rt, "max read")
			c.GapBytes = rapid.SampledFrom([]int64{0, 4096, 1 << 20}).Draw(rt, "gap")
			c.MaxFiles = rapid.IntRange(1, 3).Draw(rt, "files")
			c.BufferBytes = rapid.SampledFrom([]int64{4096, 1 << 20}).Draw(rt, "buffer")
			s, err := Open(c)
			require.NoError(rt, err)
			open = append(open, s)
			if w.objects == nil {
				w.objects = map[string]storage.Object{}
			}
			require.NoError(rt, s.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
				w.objects[o.Path] = o
				return nil
			}))
		}
		any := func() *Storage { return open[rapid.IntRange(0, len(open)-1).Draw(rt, "mount")] }
		span := func() (path string, off, n int) {
			path = rapid.SampledFrom(paths).Draw(rt, "path")
			size := len(files[path])
			n = 1 + rapid.IntRange(0, min(size, 200_000)-1).Draw(rt, "n")
			return path, rapid.IntRange(0, size-n).Draw(rt, "off"), n
		}
		where := func(path, ending string) string {
			o := w.objects[path]
			id, _ := byPath(o)
			k := keyOf(id, o.SizeBytes)
			return filepath.Join(dir, storeName, k.folder(), k.name()+ending)
		}
		fileOf := func(ending string) string { return where(rapid.SampledFrom(paths).Draw(rt, "file of"), ending) }
		all := func(s *Storage) {
			for _, path := range paths {
				buf := make([]byte, len(files[path]))
				require.NoError(rt, storage.ReadAt(context.Background(), s, w.objects[path], buf, 0))
				require.True(rt, bytes.Equal(files[path], buf), "%s", path)
			}
		}
		ending := func() string { return rapid.SampledFrom([]string{".data", ".sums"}).Draw(rt, "ending") }
		mount()
		read := func(s *Storage, count int) {
			type ask struct {
				path string
				off  int
				buf  []byte
			}
			asks, errs, reads := make([]ask, count), make(chan error, count), make([]*storage.Read, count)
			for i := range asks {
				path, off, n := span()
				asks[i] = ask{path, off, make([]byte, n)}
				reads[i] = &storage.Read{Object: w.objects[path], OffsetBytes: int64(off), Buf: asks[i].buf, Done: func(err error) { errs <- err }}
			}
			s.Submit(reads)
			for range asks {
				require.NoError(rt, <-errs)
			}
			for _, a := range asks {
				require.True(rt, bytes.Equal(files[a.path][a.off:][:len(a.buf)], a.buf), "%s at %d", a.path, a.off)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"read":      func(*rapid.T) { read(any(), 1) },
			"read many": func(*rapid.T) { read(any(), 8) },
			"plan": func(*rapid.T) {
				wants := make([]storage.Block, rapid.IntRange(0, 4).Draw(rt, "wants"))
				for i := range wants {
					path, off, n := span()
					wants[i] = storage.Block{Object: w.objects[path], OffsetBytes: int64(off), SizeBytes: int64(n), DueBytes: int64(i)}
				}
				any().Want(rapid.Uint64Range(0, 1).Draw(rt, "reader"), wants)
			},
			"done": func(*rapid.T) {
				path, off, n := span()
				any().Passed(rapid.Uint64Range(0, 1).Draw(rt, "reader"), []storage.Block{{Object: w.objects[path], OffsetBytes: int64(off), SizeBytes: int64(n)}})
			},
			"forget": func(*rapid.T) { any().Drop(rapid.Uint64Range(0, 1).Draw(rt, "reader")) },
			"fill": func(*rapid.T) {
				any().Fill([]storage.Object{w.objects["some"], w.objects["large"], w.objects["empty"]})
			},
			"settle": func(*rapid.T) { settle(any()) },
			"count":  func(*rapid.T) { any().keeper.count() },
			"mount": func(*rapid.T) {
				if len(open) < 3 {
					mount()
				}
			},
			"unmount": func(*rapid.T) {
				if len(open) > 1 {
					require.NoError(rt, open[0].Close())
					open = open[1:]
				}
			},
			"flip": func(*rapid.T) {
				path := fileOf(ending())
				if info, err := os.Stat(path); err == nil && info.Size() > 0 {
					_ = flip(path, rapid.Int64Range(0, info.Size()-1).Draw(rt, "at"))
				}
				all(any())
			},
			"flip data": func(*rapid.T) {
				o := rapid.SampledFrom(paths).Draw(rt, "flipped")
				_ = flip(where(o, ".data"), rapid.Int64Range(0, int64(len(files[o]))-1).Draw(rt, "at"))
				all(any())
			},
			"punch": func(*rapid.T) {
				_ = punchFile(fileOf(ending()), 4096*rapid.Int64Range(0, 200).Draw(rt, "at"), 40_960)
				all(any())
			},
			"truncate": func(*rapid.T) {
				_ = os.Truncate(fileOf(ending()), rapid.Int64Range(0, 900_000).Draw(rt, "to"))
				all(any())
			},
			"remove": func(*rapid.T) {
				_ = unix.Unlink(fileOf(ending()))
				all(any())
			},
			"swap": func(*rapid.T) {
				_ = os.Rename(fileOf(".data"), fileOf(".data"))
				all(any())
			},
			"clean": func(*rapid.T) {
				d, err := OpenDirectory(dir, nil)
				require.NoError(rt, err)
				_, err = d.Clean(context.Background(), Which{})
				require.NoError(rt, err)
				require.NoError(rt, d.Verify(context.Background(), true, func(Checked) error { return nil }))
				require.NoError(rt, d.Close())
			},
		})
	})
}
