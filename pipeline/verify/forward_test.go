package verify

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// openFiles returns a storage with files of the given sizes, and their contents.
func openFiles(t *testing.T, sizes ...int) (storage.Storage, []storage.Object, [][]byte) {
	t.Helper()
	dir := t.TempDir()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	files, err := local.Open(dir, engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, engine.Close())
	})
	objects, contents := make([]storage.Object, len(sizes)), make([][]byte, len(sizes))
	r := rand.New(rand.NewPCG(1, 1))
	for k, size := range sizes {
		contents[k] = make([]byte, size)
		for i := range contents[k] {
			contents[k][i] = byte(r.Uint32())
		}
		name := string(rune('a' + k))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), contents[k], 0o644))
		objects[k], err = files.Stat(t.Context(), name)
		require.NoError(t, err)
	}
	return files, objects, contents
}

func TestForwardReadsReturnBytesOfFile(t *testing.T) {
	files, objects, contents := openFiles(t, 70_001)
	o, want := objects[0], contents[0]
	rapid.Check(t, func(t *rapid.T) {
		part := int64(4096 * rapid.IntRange(1, 6).Draw(t, "pages"))
		depth := rapid.IntRange(1, 5).Draw(t, "depth")
		arrived := int64(0)
		f, err := newForward(context.Background(), files, part, depth, func(n int64) { arrived += n })
		require.NoError(t, err)
		defer f.close()
		require.NoError(t, f.open(o, nil))
		at := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			if rapid.IntRange(0, 5).Draw(t, "jump") == 0 {
				at = rapid.Int64Range(0, int64(len(want))+100).Draw(t, "to")
			}
			p := make([]byte, rapid.IntRange(0, 30_000).Draw(t, "size"))
			n, err := f.ReadAt(p, at)
			left := max(0, int64(len(want))-at)
			if int64(len(p)) > left {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, int(min(left, int64(len(p)))), n)
			if n > 0 {
				require.Equal(t, want[at:at+int64(n)], p[:n])
			}
			at += int64(n)
		}
		require.LessOrEqual(t, arrived, int64(len(want)))
	})
}

// TestForwardContinuesWithNextObject skips bytes, steps back, and leaves objects before their ends:
// the bytes are right, and a purely sequential reader reads every byte once.
func TestForwardContinuesWithNextObject(t *testing.T) {
	plain, objects, contents := openFiles(t, 70_001, 0, 30_000, 1, 4096, 9000)
	files := faulty.New(plain)
	rapid.Check(t, func(t *rapid.T) {
		read := map[string]int64{}
		var mu sync.Mutex
		files.Before = func(r *storage.Read) error {
			mu.Lock()
			defer mu.Unlock()
			read[r.Object.Path] += int64(len(r.Buf))
			return nil
		}
		queue := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "queue")
		depth := rapid.IntRange(1, 9).Draw(t, "depth")
		back := rapid.Bool().Draw(t, "steps back")
		leaves := rapid.Bool().Draw(t, "leaves early")
		passed := map[string]int64{}
		var now string
		f, err := newForward(context.Background(), files, 4096, depth, func(n int64) { passed[now] += n })
		require.NoError(t, err)
		defer f.close()
		for turn, k := range queue {
			o, want := objects[k], contents[k]
			now = o.Path
			require.NoError(t, f.open(o, func() (storage.Object, bool) {
				if turn+1 == len(queue) {
					return storage.Object{}, false
				}
				return objects[queue[turn+1]], true
			}))
			for at := int64(0); at < o.SizeBytes; {
				p := make([]byte, min(rapid.Int64Range(1, 9000).Draw(t, "size"), o.SizeBytes-at))
				n, err := f.ReadAt(p, at)
				require.NoError(t, err)
				require.Equal(t, want[at:at+int64(n)], p)
				at += int64(n) + rapid.Int64Range(0, 20_000).Draw(t, "passes over")
				if back && rapid.IntRange(0, 9).Draw(t, "back") == 0 {
					at = 0
				}
				if leaves && rapid.IntRange(0, 4).Draw(t, "leave") == 0 {
					break
				}
			}
			if !leaves && o.SizeBytes > 0 {
				require.NoError(t, f.rest())
				require.Equal(t, o.SizeBytes, passed[o.Path])
			}
		}
		for _, o := range objects {
			if !back && !leaves {
				require.Equal(t, o.SizeBytes, read[o.Path], o.Path)
			}
		}
	})
}

func TestForwardPrefetchesNextObject(t *testing.T) {
	plain, objects, _ := openFiles(t, 70_001, 30_000)
	files := faulty.New(plain)
	var next atomic.Int64
	files.Before = func(r *storage.Read) error {
		if r.Object == objects[1] {
			next.Add(1)
		}
		return nil
	}
	f, err := newForward(t.Context(), files, 4096, 4, func(int64) {})
	require.NoError(t, err)
	defer f.close()
	require.NoError(t, f.open(objects[0], func() (storage.Object, bool) { return objects[1], true }))
	require.NoError(t, f.rest())
	require.EqualValues(t, 3, next.Load(), "all parts but the last of the first object's")
}
