package arrays

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainFraming is for files that begin with the size of a row, in 8 bytes.
type plainFraming struct{}

func (plainFraming) HeaderBytes([]byte) int { return 8 }

func (plainFraming) Describe(head []byte, size int64) (string, int64, int64, int64, error) {
	if len(head) < 8 {
		return "", 0, 0, 0, fmt.Errorf("no header")
	}
	row := int64(binary.LittleEndian.Uint64(head))
	return fmt.Sprint(row), (size - 8) / row, row, 8, nil
}

func (plainFraming) Prologue(names, kinds []string, n uint64) ([]byte, error) {
	return fmt.Appendf(nil, "%s of %s, %d;", strings.Join(names, "+"), strings.Join(kinds, "+"), n), nil
}

// made is a storage of one object, and the object's expected contents.
type made struct {
	*Storage
	dir    string
	object storage.Object
	want   []byte
}

// join makes an object of files with rows of these sizes.
func join(t testing.TB, rows int, sizes ...int) *made {
	dir, err := os.MkdirTemp("", "joined-")
	require.NoError(t, err)
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	under, err := local.OpenDirect(dir, engine, local.DirectOff)
	require.NoError(t, err)
	m := &made{Storage: Wrap(under, plainFraming{}), dir: dir}
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.NoError(t, engine.Close())
		require.NoError(t, os.RemoveAll(dir))
	})
	var names, kinds []string
	records := make([][]byte, rows)
	for i, size := range sizes {
		names, kinds = append(names, fmt.Sprintf("f%d", i)), append(kinds, fmt.Sprint(size))
		b := binary.LittleEndian.AppendUint64(nil, uint64(size))
		for n := range rows {
			row := make([]byte, size)
			for k := range row {
				row[k] = byte(1 + i*31 + n*7 + k*3)
			}
			b = append(b, row...)
			records[n] = append(records[n], row...)
			records[n] = append(records[n], make([]byte, (64-size%64)%64)...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, names[i]), b, 0o644))
	}
	prologue, _ := plainFraming{}.Prologue(names, kinds, uint64(rows))
	m.want = append(prologue, bytes.Join(records, nil)...)
	m.object, err = m.Join(context.Background(), names, m.files(t, names))
	require.NoError(t, err)
	require.EqualValues(t, len(m.want), m.object.SizeBytes)
	return m
}

// files returns the files with these names as they are listed now.
func (m *made) files(t testing.TB, names []string) []storage.Object {
	byPath := map[string]storage.Object{}
	require.NoError(t, m.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		byPath[o.Path] = o
		return nil
	}))
	var list []storage.Object
	for _, n := range names {
		list = append(list, byPath[n])
	}
	return list
}

func (m *made) read(off, n int) ([]byte, error) {
	b := bytes.Repeat([]byte{0xee}, n)
	return b, storage.ReadAt(context.Background(), m, m.object, b, int64(off))
}

func TestAnyRangeOfArraysHasRowsOfItsFilesAndZeros(t *testing.T) {
	for _, sizes := range [][]int{{1, 1}, {64, 8}, {8, 64, 100}, {63, 65, 1}, {togetherBytes, 8}, {togetherBytes + 13, 3, togetherBytes - 1}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			m := join(t, 29, sizes...)
			whole, err := m.read(0, len(m.want))
			require.NoError(t, err)
			require.True(t, bytes.Equal(m.want, whole))
			record := 0
			for _, size := range sizes {
				record += (size + 63) / 64 * 64
			}
			rapid.Check(t, func(t *rapid.T) {
				most := len(m.want)
				n := rapid.SampledFrom([]int{1, 2, 63, 64, 65, record - 1, record, record + 1, 3 * record, most}).Draw(t, "n")
				n = min(n, most)
				off := rapid.IntRange(0, most-n).Draw(t, "off")
				got, err := m.read(off, n)
				require.NoError(t, err)
				require.True(t, bytes.Equal(m.want[off:off+n], got), "[%d, %d)", off, off+n)
			})
		})
	}
}

func TestChangeOfAnyFileChangesArraysObject(t *testing.T) {
	for i := range 3 {
		m := join(t, 10, 8, 100, 8)
		path := filepath.Join(m.dir, fmt.Sprintf("f%d", i))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Unix(1_000_000_000, 0)))
		_, err := m.read(0, len(m.want))
		require.ErrorIs(t, err, storage.ErrChanged)
		require.ErrorContains(t, err, fmt.Sprintf("f%d", i))
		now, err := m.Stat(context.Background(), m.object.Path)
		require.NoError(t, err)
		require.NotEqual(t, m.object.Version, now.Version)
		names := []string{"f0", "f1", "f2"}
		again, err := m.Join(context.Background(), names, m.files(t, names))
		require.NoError(t, err)
		require.NotEqual(t, m.object, again)
		require.ErrorIs(t, storage.ReadAt(context.Background(), m, m.object, make([]byte, 1), 0), storage.ErrChanged, "that was listed before")
		m.object = again
		got, err := m.read(0, len(m.want))
		require.NoError(t, err)
		require.True(t, bytes.Equal(m.want, got))
	}
}

func TestFilesOfDifferentLengthsAreNotAnObject(t *testing.T) {
	m := join(t, 10, 8, 16)
	require.NoError(t, os.Truncate(filepath.Join(m.dir, "f1"), 8+9*16))
	_, err := m.Join(context.Background(), []string{"a", "b"}, m.files(t, []string{"f0", "f1"}))
	require.ErrorContains(t, err, "f0 has 10 rows, and f1 has 9")
}

func TestCancelledImpossibleAndLateReadsOfArrays(t *testing.T) {
	m := join(t, 10, 8, 16)
	submit := func(r *storage.Read) error {
		done := make(chan error, 1)
		r.Done = func(err error) { done <- err }
		m.Submit([]*storage.Read{r})
		return <-done
	}
	var asked atomic.Int32
	unwanted := &storage.Read{Object: m.object, Buf: make([]byte, len(m.want)), Wanted: func() bool { return asked.Add(1) < 1 }}
	require.Equal(t, storage.ErrUnwanted, submit(unwanted))
	require.EqualValues(t, 1, asked.Load(), "who has said no is not asked again")

	for _, r := range []*storage.Read{
		{Object: m.object, OffsetBytes: -1, Buf: make([]byte, 1)},
		{Object: m.object, OffsetBytes: m.object.SizeBytes, Buf: make([]byte, 1)},
		{Object: m.object, OffsetBytes: 0},
		{Object: storage.Object{Path: "f1", SizeBytes: 100}, Buf: make([]byte, 1)},
	} {
		var e *storage.Error
		require.ErrorAs(t, submit(r), &e)
		require.Equal(t, r.Object.Path, e.Object)
	}
	require.NoError(t, m.Close())
	require.ErrorIs(t, submit(&storage.Read{Object: m.object, Buf: make([]byte, 1)}), fs.ErrClosed)
}

// Rows are read together, not one by one.
func TestReadOfManyRowsTakesFewSteps(t *testing.T) {
	m := join(t, 1000, 8, 16)
	o := m.objects[m.object.Path]
	split := func(off, n int64) int {
		x := &reading{storage: m.Storage, read: &storage.Read{Object: m.object, OffsetBytes: off, Buf: make([]byte, n)}}
		return len(x.split(o))
	}
	require.Equal(t, 2, split(0, m.object.SizeBytes))
	first := int64(len(o.prologue))
	require.Equal(t, 2, split(first, 128), "a record")
	require.Equal(t, 1, split(first+64, 64), "one field")
	require.Zero(t, split(first+8, 56), "padding")
	require.Zero(t, split(0, first), "the prologue")
}

// Hints and mappings of files don't fit the objects.
func TestArraysPassCapabilitiesOn(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage {
		return Wrap(below, plainFraming{})
	}, map[string]storagetest.Passing{
		"StatStable":    storagetest.Passed,
		"Omitted":       storagetest.Passed,
		"Status":        storagetest.Passed,
		"AdjustProfile": storagetest.Passed,
		"HeldBytes":     storagetest.Passed,
		"Uncached":      storagetest.Translated,
		"Join":          storagetest.Own,
	})
}

// openAgain is a storage that may have another storage to bypass the page cache.
type openAgain struct {
	storage.Storage
	with storage.Storage
}

func (o openAgain) Caps() storage.Caps {
	return storage.Caps{Uncached: func() (storage.Storage, error) { return o.with, nil }}
}

// onlyCached is a storage that can't bypass the page cache.
type onlyCached struct{ storage.Storage }

func (onlyCached) Caps() storage.Caps { return storage.Caps{} }

func TestDirectReadsUseSeparateStorage(t *testing.T) {
	m := join(t, 20, 3, 100)
	again, err := m.Uncached()
	require.NoError(t, err)
	require.NotNil(t, again)
	got := make([]byte, len(m.want))
	require.NoError(t, storage.ReadAt(t.Context(), again, m.object, got, 0))
	require.Equal(t, m.want, got)
	require.NoError(t, again.Close())
	clear(got)
	require.NoError(t, storage.ReadAt(t.Context(), m, m.object, got, 0))
	require.Equal(t, m.want, got, "the first stays open")

	none, err := Wrap(openAgain{m.under, nil}, plainFraming{}).Uncached()
	require.NoError(t, err)
	require.Nil(t, none)
	require.Nil(t, Wrap(onlyCached{m.under}, plainFraming{}).Caps().Uncached)
}
