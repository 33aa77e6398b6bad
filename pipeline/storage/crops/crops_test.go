package crops

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// element is the value of an element whose chunk is not absent.
func element(number int64) uint16 { return uint16(number*40503>>4 ^ number) }

// otherBits are the bits that differ in rewritten elements.
const otherBits = 0x5a5a

// made is a storage of one array's crops, with what is needed to compute its expected content.
type made struct {
	*Storage
	dir    string
	array  encode.Array
	absent map[string]bool // chunks, by place
	object storage.Object
	jitter *zarr.Jitter
	// changed reports whether the elements of a chunk have other values; nil: none have.
	changed func(chunk []int64) bool
}

// write writes an array in which every seventh chunk is absent.
func write(t testing.TB, dir string, a encode.Array) map[string]bool {
	return writeOf(t, dir, a, 0)
}

// writeOf writes one whose elements differ in the bits of flipped.
func writeOf(t testing.TB, dir string, a encode.Array, flipped uint16) map[string]bool {
	absent := map[string]bool{}
	require.NoError(t, a.Write(dir, func(place []int64, b []byte) bool {
		if (place[0]*5+place[1]*3+place[2])%7 == 3 {
			absent[fmt.Sprint(place)] = true
			return false
		}
		grid, at := zarr.Grid{Counts: a.Chunk}, make([]int64, len(place))
		for i := range grid.Total() {
			grid.Place(at, i)
			for d := range at {
				at[d] += place[d] * a.Chunk[d]
			}
			binary.LittleEndian.PutUint16(b[2*i:], flipped^element(zarr.Grid{Counts: a.Shape}.Number(at)))
		}
		return true
	}))
	return absent
}

var small = encode.Array{
	Shape: []int64{11, 37, 50}, Chunk: []int64{4, 8, 16}, Object: []int64{8, 16, 32}, Dims: []string{"t", "y", "x"},
	DataType: "uint16", ItemBytes: 2, Fill: 77,
}

var smallCrops = spec.Zarr{
	Crop: []spec.DimValue{{Dim: "t", Value: 3}, {Dim: "y", Value: 10}, {Dim: "x", Value: 9}}, Stride: []spec.DimValue{{Dim: "t", Value: 2}, {Dim: "y", Value: 5}, {Dim: "x", Value: 4}},
}

func openLocal(t testing.TB, dir string) storage.Storage {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	under, err := local.OpenDirect(dir, engine, local.DirectOff)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return under
}

func open(t testing.TB, a encode.Array, z spec.Zarr, memory int64) *made {
	m := &made{dir: t.TempDir(), array: a}
	m.absent = write(t, m.dir, a)
	m.Storage = Wrap(openLocal(t, m.dir), Config{Spec: z, Base: "a.zarr", MemoryBytes: memory, Seed: 5})
	t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
	m.list(t)
	return m
}

func (m *made) list(t testing.TB) {
	require.NoError(t, m.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		m.object = o
		return nil
	}))
}

// want returns the whole expected object, element by element.
func (m *made) want() []byte {
	c := m.cubes["a.zarr"]
	b := bytes.Clone(c.header)
	spot, crop := c.Cut.NewSpot(), c.Cut.NewCrop(0)
	for n := range c.Cut.Total() {
		c.Cut.Locate(spot, n, m.jitter)
		c.Cut.Place(0, crop, spot)
		grid, at, chunk := zarr.Grid{Counts: crop.Count}, make([]int64, 3), make([]int64, 3)
		for i := range grid.Total() {
			grid.Place(at, i)
			for d := range at {
				at[d] = (crop.Origin[d] + at[d]*crop.Step[d]) % m.array.Shape[d]
				chunk[d] = at[d] / m.array.Chunk[d]
			}
			v := element(zarr.Grid{Counts: m.array.Shape}.Number(at))
			if m.changed != nil && m.changed(chunk) {
				v ^= otherBits
			}
			if m.absent[fmt.Sprint(chunk)] {
				v = 77
			}
			b = binary.LittleEndian.AppendUint16(b, v)
		}
	}
	return b
}

func (m *made) read(off, n int64, epoch uint64) ([]byte, error) {
	b := bytes.Repeat([]byte{0xee}, int(n))
	done := make(chan error, 1)
	m.Submit([]*storage.Read{{Object: m.object, OffsetBytes: off, Buf: b, Epoch: epoch, Done: func(err error) { done <- err }}})
	return b, <-done
}

func TestAnyRangeOfGridHasElementsOfItsCrops(t *testing.T) {
	arrays := map[string]encode.Array{}
	for _, codec := range encode.Codecs {
		a := small
		a.Codec = codec
		arrays[string(codec)] = a
		a.Object = a.Chunk
		arrays[string(codec)+", unsharded"] = a
	}
	start := small
	start.Codec, start.IndexAtStart, start.NoChecksum, start.BlockBytes = encode.BloscLZ4, true, true, 256
	arrays["index at start, small blocks"] = start
	for name, a := range arrays {
		for _, memory := range []int64{0, 5 << 10, 1 << 20} {
			t.Run(fmt.Sprint(name, ", ", memory), func(t *testing.T) {
				m := open(t, a, smallCrops, memory)
				want := m.want()
				require.EqualValues(t, len(want), m.object.SizeBytes)
				whole, err := m.read(0, m.object.SizeBytes, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, whole))
				record := m.cubes["a.zarr"].row.Bytes
				rapid.Check(t, func(t *rapid.T) {
					n := min(rapid.SampledFrom([]int64{1, 2, 3, record - 1, record, record + 1, 3*record + 7}).Draw(t, "n"), m.object.SizeBytes)
					off := rapid.Int64Range(0, m.object.SizeBytes-n).Draw(t, "off")
					got, err := m.read(off, n, 0)
					require.NoError(t, err)
					require.True(t, bytes.Equal(want[off:off+n], got), "[%d, %d)", off, off+n)
				})
				require.LessOrEqual(t, m.Stats().HeldBytes, memory)
			})
		}
	}
}

func TestWrappedSteppedJitteredAndSelectedCrops(t *testing.T) {
	for name, edit := range map[string]func(*spec.Zarr){
		"wrap":   func(z *spec.Zarr) { z.Wrap = []string{"x"} },
		"step":   func(z *spec.Zarr) { z.Step = []spec.DimValue{{Dim: "y", Value: 3}, {Dim: "x", Value: 2}} },
		"cover":  func(z *spec.Zarr) { z.Cover = true },
		"region": func(z *spec.Zarr) { z.Select = []spec.Selection{{Dim: "y", Begin: 7, End: 29}} },
		"jitter": func(z *spec.Zarr) { z.Jitter = true },
	} {
		t.Run(name, func(t *testing.T) {
			z := smallCrops
			edit(&z)
			a := small
			a.Codec = encode.BloscZstd
			m := open(t, a, z, 1<<20)
			var before []byte
			for epoch := range uint64(3) {
				if z.Jitter {
					j := zarr.NewJitter(5, epoch, "a.zarr")
					m.jitter = &j
				}
				want := m.want()
				got, err := m.read(0, m.object.SizeBytes, epoch)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got))
				if before != nil {
					require.Equal(t, !z.Jitter, bytes.Equal(before, got), "epochs differ where there is jitter")
				}
				before = got
			}
		})
	}
}

// A crop of few steps of a long chunk needs few of its blocks, and no others are decoded.
func TestOnlyWantedBlocksOfLongChunkAreDecoded(t *testing.T) {
	a := small
	a.Shape, a.Chunk, a.Object, a.BlockBytes = []int64{200, 9, 16}, []int64{200, 9, 16}, []int64{200, 9, 16}, 512
	for _, codec := range []encode.Codec{encode.BloscLZ4, encode.BloscZstd} {
		a.Codec = codec
		z := spec.Zarr{Crop: []spec.DimValue{{Dim: "t", Value: 3}, {Dim: "y", Value: 9}, {Dim: "x", Value: 7}}, Stride: []spec.DimValue{{Dim: "t", Value: 2}, {Dim: "y", Value: 9}, {Dim: "x", Value: 4}}}
		m := open(t, a, z, 0)
		want, record := m.want(), m.cubes["a.zarr"].row.Bytes
		for off := int64(len(m.cubes["a.zarr"].header)); off < m.object.SizeBytes; off += record {
			got, err := m.read(off, record, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[off:off+record], got))
		}
		crops := m.cubes["a.zarr"].Cut.Total()
		require.Equal(t, crops, m.Stats().Decoded)
		require.LessOrEqual(t, m.Stats().Blocks, 3*crops, "of 113 blocks a crop needs 2 or 3")
		require.GreaterOrEqual(t, m.Stats().Blocks, 2*crops)
	}
}

func TestReadersShareChunks(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	m := open(t, a, smallCrops, 1<<20)
	want := m.want()
	var group errgroup.Group
	for i := range 8 {
		group.Go(func() error {
			dice := rand.New(rand.NewPCG(1, uint64(i)))
			for range 100 {
				n := 1 + dice.Int64N(5000)
				off := dice.Int64N(m.object.SizeBytes - n + 1)
				got, err := m.read(off, n, 0)
				if err != nil || !bytes.Equal(want[off:off+n], got) {
					return fmt.Errorf("[%d, %d): %w", off, off+n, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	s := m.Stats()
	chunks := zarr.Grid{Counts: []int64{3, 5, 4}}.Total() - int64(len(m.absent))
	require.LessOrEqual(t, s.Decoded, uint64(2*chunks), "each chunk is decoded once, or twice by two at a time")
	require.NotZero(t, s.Found)
}

// TestChangedObjectFailsOnlyReadsThatNeedIt changes each object in each way, and reads all crops.
func TestChangedObjectFailsOnlyReadsThatNeedIt(t *testing.T) {
	for _, sharded := range []bool{true, false} {
		a := small
		a.Codec = encode.Zstd
		if !sharded {
			a.Object = a.Chunk
		}
		for name, change := range map[string]func(t *testing.T, path string){
			"rewritten": func(t *testing.T, path string) {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path+"~", b, 0o644))
				require.NoError(t, os.Rename(path+"~", path))
			},
			"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10)) },
			"removed":   func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
		} {
			t.Run(fmt.Sprint(name, ", sharded: ", sharded), func(t *testing.T) {
				m := open(t, a, smallCrops, 0)
				want := m.want()
				change(t, filepath.Join(m.dir, "c/0/0/0"))
				record, failed := m.cubes["a.zarr"].row.Bytes, 0
				for off := int64(len(m.cubes["a.zarr"].header)); off < m.object.SizeBytes; off += record {
					got, err := m.read(off, record, 0)
					if err == nil {
						require.True(t, bytes.Equal(want[off:off+record], got))
						continue
					}
					failed++
					require.ErrorContains(t, err, "c/0/0/0")
				}
				require.NotZero(t, failed)
				require.Less(t, int64(failed)*record, m.object.SizeBytes/2)
			})
		}
	}
}

func TestNewObjectInPlaceOfAbsentOneIsAChange(t *testing.T) {
	a := small
	a.Object = a.Chunk
	m := open(t, a, smallCrops, 1<<20)
	path := filepath.Join(m.dir, "c/0/1/0") // 0*5 + 1*3 + 0 = 3
	require.NoFileExists(t, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, make([]byte, 4*8*16*2), 0o644))
	_, err := m.read(0, m.object.SizeBytes, 0)
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, "c/0/1/0")
}

func TestDamageErrorNamesObjectChunkAndPosition(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	dir := t.TempDir()
	write(t, dir, a)
	path := filepath.Join(dir, "c/0/0/0")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[4] ^= 1 // the decoded size of the first chunk
	require.NoError(t, os.WriteFile(path, b, 0o644))
	s := Wrap(openLocal(t, dir), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	m := &made{Storage: s}
	m.list(t)
	_, err = m.read(0, m.object.SizeBytes, 0)
	require.ErrorContains(t, err, "c/0/0/0: chunk (0,0,0) at [0, ")
	require.ErrorContains(t, err, "blosc: ")
	var named *storage.Error
	require.ErrorAs(t, err, &named)
	require.Equal(t, "a.zarr", named.Object)
}

func TestCheckFindsImpossibleIndexesAndSizes(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(a *encode.Array)
		damage func(b []byte) []byte
		want   string
	}{
		"checksum":     {func(*encode.Array) {}, func(b []byte) []byte { b[len(b)-30] ^= 1; return b }, "c/0/0/1: "},
		"cut":          {func(*encode.Array) {}, func(b []byte) []byte { return b[:20] }, "c/0/0/1: "},
		"points out":   {func(a *encode.Array) { a.NoChecksum = true }, func(b []byte) []byte { b[len(b)-10]++; return b }, "c/0/0/1: "},
		"raw, shorter": {func(a *encode.Array) { a.Object = a.Chunk }, func(b []byte) []byte { return b[:len(b)-1] }, "c/0/0/1: it has 1023 bytes, and a chunk has 1024"},
		"empty":        {func(a *encode.Array) { a.Object, a.Codec = a.Chunk, encode.Zstd }, func([]byte) []byte { return nil }, "c/0/0/1: it has 0 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			a := small
			c.edit(&a)
			m := open(t, a, smallCrops, 0)
			require.NoError(t, m.Check(t.Context(), m.object))
			path := filepath.Join(m.dir, "c/0/0/1")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, c.damage(b), 0o644))
			require.ErrorIs(t, checkOr(m.Check(t.Context(), m.object), a), storage.ErrChanged, "it was listed otherwise")
			m.list(t)
			require.ErrorContains(t, m.Check(t.Context(), m.object), c.want)
		})
	}
}

// checkOr is the error expected of a read after a check returned err. A check compares listed
// sizes, so it finds nothing in arrays without indexes.
func checkOr(err error, a encode.Array) error {
	if a.Object[0] == a.Chunk[0] {
		return storage.ErrChanged
	}
	return err
}

func TestHeaderNeedsNoReads(t *testing.T) {
	a := small
	a.Codec = encode.Zstd
	m := open(t, a, smallCrops, 0)
	x, err := m.Outline(m.object)
	require.NoError(t, err)
	header := m.cubes["a.zarr"].header
	want := append(bytes.Clone(header), make([]byte, m.object.SizeBytes-int64(len(header)))...)
	for _, off := range []int64{0, 1, int64(len(header)) - 1, int64(len(header)), m.object.SizeBytes - 10} {
		got := bytes.Repeat([]byte{1}, 10)
		n, err := x.ReadAt(got, off)
		require.NoError(t, err)
		require.Equal(t, 10, n)
		require.Equal(t, want[off:off+10], got)
	}
	n, err := x.ReadAt(make([]byte, 10), m.object.SizeBytes-3)
	require.Equal(t, 3, n)
	require.ErrorIs(t, err, io.EOF)
	require.Zero(t, m.Stats().Decoded)
	other := m.object
	other.SizeBytes++
	_, err = m.Outline(other)
	require.ErrorIs(t, err, storage.ErrChanged)
}

func TestCancelledImpossibleAndLateReadsOfGrid(t *testing.T) {
	m := open(t, small, smallCrops, 1<<20)
	submit := func(r *storage.Read) error {
		done := make(chan error, 1)
		r.Done = func(err error) { done <- err }
		m.Submit([]*storage.Read{r})
		return <-done
	}
	var asked atomic.Int32
	unwanted := &storage.Read{Object: m.object, Buf: make([]byte, m.object.SizeBytes), Wanted: func() bool { return asked.Add(1) < 1 }}
	require.Equal(t, storage.ErrUnwanted, submit(unwanted))
	require.EqualValues(t, 1, asked.Load(), "who has said no is not asked again")
	other := m.object
	other.Version.Inode++
	for _, r := range []*storage.Read{
		{Object: m.object, OffsetBytes: -1, Buf: make([]byte, 1)},
		{Object: m.object, OffsetBytes: m.object.SizeBytes, Buf: make([]byte, 1)},
		{Object: m.object, OffsetBytes: 0},
		{Object: storage.Object{Path: "b.zarr", SizeBytes: 100}, Buf: make([]byte, 1)},
		{Object: other, Buf: make([]byte, 1)},
	} {
		var e *storage.Error
		require.ErrorAs(t, submit(r), &e)
		require.Equal(t, r.Object.Path, e.Object)
	}
	require.NoError(t, m.Storage.Close())
	require.ErrorIs(t, submit(&storage.Read{Object: m.object, Buf: make([]byte, 1)}), fs.ErrClosed)
}

func TestAnyChangeChangesIdentityOfGrid(t *testing.T) {
	m := open(t, small, smallCrops, 0)
	was := m.object
	m.list(t)
	require.Equal(t, was, m.object)
	require.NoError(t, os.Remove(filepath.Join(m.dir, "c/1/2/1")))
	m.list(t)
	require.NotEqual(t, was.Version, m.object.Version)
	was = m.object
	doc, err := os.ReadFile(filepath.Join(m.dir, "zarr.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "zarr.json"), append(doc, ' '), 0o644))
	_, err = m.Stat(t.Context(), "a.zarr")
	require.ErrorIs(t, err, storage.ErrChanged)
	m.list(t)
	require.NotEqual(t, was.Version, m.object.Version)
	require.True(t, strings.HasSuffix(m.object.Path, ".zarr"))
}

// The chunks of a coordinate are bounded like those of other arrays: if one claims 64 GiB, nothing
// is decoded.
func TestCoordinateOfHugeChunksIsRefused(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	put(".zgroup", `{"zarr_format":2}`)
	put("a/.zarray", `{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<i2","compressor":null,"fill_value":0,"order":"C","filters":null}`)
	put("a/.zattrs", `{"_ARRAY_DIMENSIONS":["t"]}`)
	put("t/.zarray", `{"zarr_format":2,"shape":[4],"chunks":[8589934592],"dtype":"<i8","compressor":{"id":"gzip","level":1},"fill_value":0,"order":"C","filters":null}`)
	put("t/.zattrs", `{"_ARRAY_DIMENSIONS":["t"]}`)
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	_, err := z.Write(make([]byte, 32))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	put("t/0", stored.String())

	s := Wrap(openLocal(t, dir), Config{
		Spec: spec.Zarr{Fields: []spec.Array{{Pattern: "a"}}, Crop: []spec.DimValue{{Dim: "t", Value: 2}}}, Base: "g.zarr", MaxChunkBytes: 1 << 30,
	})
	defer func() { require.NoError(t, s.Close()) }()
	var found storage.Object
	require.NoError(t, s.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error { found = o; return nil }))
	c := s.Cube(found.Path)
	list, err := s.Coordinates(context.Background(), c)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = s.ReadCoordinate(context.Background(), c, list[0])
	require.ErrorContains(t, err, "array t has chunks of 64 GiB, more than the 1.0 GiB of --max-record")
}
