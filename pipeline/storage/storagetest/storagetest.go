// Package storagetest is the test suite that every storage.Storage passes.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// New returns a storage that contains the given files, by path, and nothing else. Paths have
// several components; some names begin with a dot. Its cleanup may close the storage; the suite
// closes it too.
type New func(t *testing.T, files map[string][]byte) storage.Storage

// Run runs the suite on storages made by newStorage.
func Run(t *testing.T, newStorage New) {
	for name, test := range map[string]func(*testing.T, New){
		"ListFindsAllObjectsAndPassesOverDots":          testListFindsAll,
		"ListEntersAndVisitsOnlyWhatMatchAccepts":       testListMatches,
		"ListStopsAtTheFirstErrorAndWhenItsContextDoes": testListStops,
		"AnEmptyStorageListsNothing":                    testListEmpty,
		"StatDescribesWhatListDoes":                     testStat,
		"StatOfNothingIsErrNotExist":                    testStatMissing,
		"AnyRangesGiveTheBytesOfTheObject":              testRanges,
		"ManyGoroutinesMayRead":                         testConcurrent,
		"DoneMaySubmit":                                 testDoneSubmits,
		"DoneIsNeverCalledFromWithinSubmit":             testDoneOutsideSubmit,
		"ReadAtFillsItsBuffer":                          testReadAt,
		"ReadsThatAreCalledOffAreNotMade":               testUnwanted,
		"ImpossibleRangesAreErrors":                     testImpossibleRanges,
		"OtherVersionsAreErrChanged":                    testChanged,
		"VanishedObjectsAreErrChanged":                  testVanished,
		"CloseWaitsForReads":                            testClose,
	} {
		t.Run(name, func(t *testing.T) { test(t, newStorage) })
	}
}

// sizes are the sizes of the objects that reads are tested on.
var sizes = map[string]int{
	"train-000.tar":           0,
	"train-001.tar":           1,
	"deep/er/est/shard.jsonl": 4096,
	"deep/ünï cøde 数据.bin":    70_001,
	"large.tar":               1<<20 + 13,
}

func contents() map[string][]byte {
	files := make(map[string][]byte, len(sizes))
	for path, size := range sizes {
		random := rand.NewChaCha8([32]byte{byte(len(path)), path[0], path[len(path)-5]})
		files[path] = make([]byte, size)
		_, _ = random.Read(files[path])
	}
	return files
}

func open(t *testing.T, newStorage New, files map[string][]byte) storage.Storage {
	s := newStorage(t, files)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func testRanges(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	var objects []storage.Object
	for _, o := range list(t, s, everything) {
		if o.SizeBytes > 0 {
			objects = append(objects, o)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		longest := rapid.SampledFrom([]int64{1, 600, 9000, 1 << 20}).Draw(t, "longest")
		reads := make([]*storage.Read, rapid.IntRange(1, 30).Draw(t, "reads"))
		for i := range reads {
			reads[i] = randomRead(random, objects[random.IntN(len(objects))], longest)
		}
		for i, err := range submit(t, s, reads) {
			require.NoError(t, err)
			requireBytes(t, files, reads[i])
		}
	})
}

func randomRead(random *rand.Rand, o storage.Object, longest int64) *storage.Read {
	length := 1 + random.Int64N(min(longest, o.SizeBytes))
	return &storage.Read{Object: o, OffsetBytes: random.Int64N(o.SizeBytes - length + 1), Buf: make([]byte, length)}
}

func requireBytes(t require.TestingT, files map[string][]byte, r *storage.Read) {
	want := files[r.Object.Path][r.OffsetBytes:][:len(r.Buf)]
	require.True(t, bytes.Equal(want, r.Buf), "%s: %d bytes at %d", r.Object.Path, len(r.Buf), r.OffsetBytes)
}

func testReadAt(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	for path, o := range list(t, s, everything) {
		p := make([]byte, o.SizeBytes)
		require.NoError(t, storage.ReadAt(t.Context(), s, o, p, 0), path)
		require.True(t, bytes.Equal(files[path], p), path)
	}
}

func testImpossibleRanges(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	o := list(t, s, everything)["deep/er/est/shard.jsonl"] // 4096 bytes
	reads := []*storage.Read{
		{Object: o, OffsetBytes: 4096, Buf: make([]byte, 1)},
		{Object: o, OffsetBytes: 4000, Buf: make([]byte, 97)},
		{Object: o, OffsetBytes: 0, Buf: make([]byte, 4097)},
		{Object: o, OffsetBytes: -1, Buf: make([]byte, 1)},
		{Object: o, OffsetBytes: 1<<63 - 1, Buf: make([]byte, 4000)},
		{Object: o, OffsetBytes: 0},
	}
	for i, err := range submit(t, s, reads) {
		requireError(t, err, reads[i])
	}
	good := &storage.Read{Object: o, Buf: make([]byte, 4096)}
	require.NoError(t, submit(t, s, []*storage.Read{good})[0], "the object is not worse for it")
}

// requireError checks that an error identifies the read that failed.
func requireError(t *testing.T, err error, r *storage.Read) {
	failed, ok := errors.AsType[*storage.Error](err)
	require.True(t, ok, "%v is a *storage.Error", err)
	require.Equal(t, r.Object.Path, failed.Object)
	require.Equal(t, r.OffsetBytes, failed.OffsetBytes)
	require.EqualValues(t, len(r.Buf), failed.SizeBytes)
}

func everything(string, bool) bool { return true }

func list(t *testing.T, s storage.Storage, match func(string, bool) bool) map[string]storage.Object {
	found := make(map[string]storage.Object)
	require.NoError(t, s.List(t.Context(), match, func(o storage.Object) error {
		require.NotContains(t, found, o.Path, "an object is visited once")
		found[o.Path] = o
		return nil
	}))
	return found
}

func paths(objects map[string]storage.Object) []string {
	names := make([]string, 0, len(objects))
	for path := range objects {
		names = append(names, path)
	}
	return names
}

func testListFindsAll(t *testing.T, newStorage New) {
	files := contents()
	for _, hidden := range []string{".hidden", ".lsiofs/index", "deep/.cache/part", "deep/.part"} {
		files[hidden] = []byte("x")
	}
	found := list(t, open(t, newStorage, files), everything)
	require.Len(t, found, len(sizes))
	for path, size := range sizes {
		require.Contains(t, found, path)
		require.EqualValues(t, size, found[path].SizeBytes, path)
		require.Equal(t, path, found[path].Path)
	}
}

func testListMatches(t *testing.T, newStorage New) {
	s := open(t, newStorage, map[string][]byte{
		"a.tar": nil, "b.txt": nil, "in/c.tar": nil, "in/d.txt": nil, "in/side/e.tar": nil, "out/f.tar": nil, "out/side/g.tar": nil, ".h/i.tar": nil,
	})
	var asked sync.Map
	found := list(t, s, func(path string, isDir bool) bool {
		asked.Store(path, isDir)
		if isDir {
			return path != "out"
		}
		return strings.HasSuffix(path, ".tar")
	})
	require.ElementsMatch(t, []string{"a.tar", "in/c.tar", "in/side/e.tar"}, paths(found))
	for path, isDir := range map[string]bool{"in": true, "out": true, "in/side": true, "in/d.txt": false} {
		got, ok := asked.Load(path)
		require.True(t, ok, "match is asked about %s", path)
		require.Equal(t, isDir, got, path)
	}
	for _, path := range []string{"out/f.tar", "out/side", ".h", ".h/i.tar"} {
		_, ok := asked.Load(path)
		require.False(t, ok, "%s is not even looked at", path)
	}
}

func testListStops(t *testing.T, newStorage New) {
	s := open(t, newStorage, map[string][]byte{"a": nil, "b/c": nil, "d/e/f": nil})
	enough := errors.New("enough")
	visits := 0
	require.ErrorIs(t, s.List(t.Context(), everything, func(storage.Object) error { visits++; return enough }), enough)
	require.Equal(t, 1, visits)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.List(ctx, everything, func(storage.Object) error { return errors.New("visited") })
	require.ErrorIs(t, err, context.Canceled)
}

func testListEmpty(t *testing.T, newStorage New) {
	require.Empty(t, list(t, open(t, newStorage, nil), everything))
}

func testStat(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	for path, listed := range list(t, s, everything) {
		got, err := s.Stat(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, listed, got)
	}
}

func testStatMissing(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	for _, path := range []string{"nothing", "deep/nothing", "nothing/at/all", "deep"} {
		_, err := s.Stat(t.Context(), path)
		require.ErrorIs(t, err, fs.ErrNotExist, path)
		require.Contains(t, err.Error(), path)
	}
}

func testChanged(t *testing.T, newStorage New) {
	files := contents()
	s := open(t, newStorage, files)
	listed := list(t, s, everything)["large.tar"]
	inode, time, shrunk, grown := listed, listed, listed, listed
	inode.Version.Inode++
	time.Version.ModTimeNanos -= 1e9
	shrunk.SizeBytes += 10 // it was larger when it was listed
	grown.SizeBytes -= 10
	for range 2 { // first with the object closed, then with it open
		for _, o := range []storage.Object{inode, time, shrunk, grown} {
			reads := []*storage.Read{{Object: o, OffsetBytes: 5, Buf: make([]byte, 10)}, {Object: o, OffsetBytes: 50, Buf: make([]byte, 7)}}
			for i, err := range submit(t, s, reads) {
				require.ErrorIs(t, err, storage.ErrChanged)
				requireError(t, err, reads[i])
			}
		}
		r := &storage.Read{Object: listed, OffsetBytes: 5, Buf: make([]byte, 10)}
		require.NoError(t, submit(t, s, []*storage.Read{r})[0])
		requireBytes(t, files, r)
	}
}

func testVanished(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	o := list(t, s, everything)["large.tar"]
	for _, path := range []string{"nothing.tar", "nothing/at.all", "large.tar/below"} {
		o.Path = path
		r := &storage.Read{Object: o, Buf: make([]byte, 10)}
		err := submit(t, s, []*storage.Read{r})[0]
		require.ErrorIs(t, err, storage.ErrChanged)
		requireError(t, err, r)
	}
}
