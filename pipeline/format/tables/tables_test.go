package tables

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func file(t testing.TB, name string) []byte {
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return data
}

// partReader reads a decoder's current part, n bytes at a time.
type partReader struct {
	format.Decoder
	n int
}

func (r partReader) Read(p []byte) (int, error) { return r.Decoder.Read(p[:min(len(p), r.n)]) }

func codecOf(t testing.TB, path string, f spec.Format) (format.Format, format.RangeCodec) {
	f.Name = "parquet"
	if f.As == "" && f.Rows.Pack == "" {
		f.As = spec.AsJSONL
	}
	x, err := New(f)
	require.NoError(t, err)
	return x, x.(format.Coded).Codec(path, nil).(format.RangeCodec)
}

// From every point, the rest of its row group is decoded to the same bytes as without.
func TestPointsAreEntered(t *testing.T) {
	for name, f := range map[string]spec.Format{
		"text/a.parquet":   {},
		"text/b.parquet":   {As: spec.AsTar},
		"tokens/t.parquet": {Rows: spec.Rows{Pack: "8", EOS: "-1"}},
		"images/i.parquet": {Rows: spec.Rows{Columns: "cls"}, As: spec.AsNPY},
		"long/l.parquet":   {},
	} {
		data := file(t, name)
		_, codec := codecOf(t, name, f)
		d := codec.NewRangeDecoder(bytes.NewReader(data), int64(len(data)), format.RangeStart{})
		var points []format.Point
		least := int64(100)
		if strings.HasPrefix(name, "long") {
			least = 300_000
		}
		d.NotePoints(least, func(p format.Point) int64 { points = append(points, p); return least })
		entered, raw := 0, int64(-1)
		records := int64(0)
		for {
			at, err := d.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.Greater(t, at, raw)
			raw = at
			points = points[:0]
			whole, err := io.ReadAll(partReader{d, 777})
			require.NoError(t, err)
			for _, p := range points {
				before := records + recordsIn(f, whole[:p.MemberBytes])
				require.Equal(t, at, p.MemberRawBytes)
				require.Greater(t, p.RawBits>>3, raw-1)
				x := codec.NewRangeDecoder(bytes.NewReader(data), int64(len(data)), format.RangeStart{RawBytes: at, State: p.State, Records: before})
				there, err := x.Next()
				require.NoError(t, err)
				require.Equal(t, at, there)
				rest, err := io.ReadAll(partReader{x, 100_000})
				require.NoError(t, err)
				require.True(t, bytes.Equal(whole[p.MemberBytes:], rest), "%s, part at %d, point at %d", name, at, p.MemberBytes)
				x.Close()
				entered++
			}
			records += recordsIn(f, whole)
		}
		require.Positive(t, d.MemoryBytes())
		d.Close()
		_, err := d.Next()
		require.Equal(t, errClosed, err)
		require.Positive(t, entered, name)
	}
}

// recordsIn counts records, where keys need it.
func recordsIn(f spec.Format, decoded []byte) int64 {
	if f.As == spec.AsTar {
		return int64(bytes.Count(decoded, []byte(".json\x00")))
	}
	return 0
}

func scan(t testing.TB, f spec.Format, path string, data []byte) (sum format.Summary, extents []format.Extent, err error) {
	x, codec := codecOf(t, path, f)
	sum, err = format.Scan(context.Background(), x, codec, bytes.NewReader(data), int64(len(data)),
		func(e format.Extent) error { extents = append(extents, e); return nil },
		func() { extents = nil })
	return sum, extents, err
}

func TestScanFindsRowsPartsAndPoints(t *testing.T) {
	sum, extents, err := scan(t, spec.Format{}, "l.parquet", file(t, "long/l.parquet"))
	require.NoError(t, err)
	require.Nil(t, sum.Damage)
	require.True(t, sum.Parts && sum.EveryRecord)
	require.Len(t, extents, 3000)
	require.Len(t, sum.Members, 2)
	require.Equal(t, "n: int64, text: string, tags: list<string>, x: float64", sum.Kind)
	require.Greater(t, len(sum.Points), 2)
	at := int64(0)
	for _, e := range extents {
		require.Equal(t, at, e.OffsetBytes)
		at += e.SizeBytes
	}
	require.Equal(t, sum.DecodedBytes, at)
	for _, p := range sum.Points {
		require.GreaterOrEqual(t, p.MemberBytes, int64(1<<20))
	}
	sum, extents, err = scan(t, spec.Format{As: spec.AsTar}, "t.parquet", file(t, "text/a.parquet"))
	require.NoError(t, err)
	require.Len(t, sum.Members, 4, "one of five row groups is empty")
	require.Len(t, extents, 1500)
	require.NotZero(t, extents[0].KeyHash)
}

// Every changed byte is damage, a refusal, or has no effect: nothing panics.
func TestChangedBytesAreDamageOrRefused(t *testing.T) {
	data := file(t, "images/i.parquet")
	_, sound, err := scan(t, spec.Format{}, "i.parquet", data)
	require.NoError(t, err)
	lost := 0
	for at := range data {
		changed := bytes.Clone(data)
		changed[at] ^= byte(1 + at%255)
		sum, extents, err := scan(t, spec.Format{}, "i.parquet", changed)
		if _, refused := errors.AsType[*format.RefusedError](err); err != nil && !refused {
			t.Fatalf("byte %d: %v", at, err)
		}
		if n := len(sum.Losses.First); n > 0 {
			lost++
			require.Less(t, len(extents), len(sound))
			require.NotEmpty(t, sum.Losses.First[0].Part)
		}
	}
	require.Positive(t, lost)
	for n := range 200 {
		_, _, err := scan(t, spec.Format{}, "i.parquet", data[:len(data)*n/200])
		require.NoError(t, err)
	}
}

func TestRowsThatCantBePresentedAreLeftOutAlone(t *testing.T) {
	data := bytes.Clone(file(t, "images/i.parquet"))
	at := bytes.Index(data, []byte("00000"))
	if at < 0 {
		t.Skip("the values are compressed")
	}
	data[at] = 0xff
	sum, extents, err := scan(t, spec.Format{}, "i.parquet", data)
	require.NoError(t, err)
	require.NotEmpty(t, sum.Losses.First)
	require.Less(t, len(extents), 500)
}

func TestRowsBeyondTheBoundAreRefused(t *testing.T) {
	for _, as := range []spec.As{spec.AsJSONL, spec.AsTar} {
		data := file(t, "images/i.parquet")
		sum, extents, err := scan(t, spec.Format{As: as}, "i.parquet", data)
		require.NoError(t, err)
		most := int64(0)
		for _, e := range extents {
			most = max(most, e.SizeBytes)
		}
		bounded, _, err := scan(t, spec.Format{As: as, MaxRowBytes: most}, "i.parquet", data)
		require.NoError(t, err)
		require.Equal(t, sum, bounded)
		_, _, err = scan(t, spec.Format{As: as, MaxRowBytes: most - 1}, "i.parquet", data)
		var refused *format.RefusedError
		require.ErrorAs(t, err, &refused)
		require.Regexp(t, `row group \d+, row \d+: .*--max-record`, refused.Reason)
	}
}

func TestExtentsOfARowGroupAreHeldInFewBytes(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		x := extents{keyed: keyed}
		for range 2 {
			var want, got []format.Extent
			x.reset()
			for i, at := int64(0), int64(5000); i < 1000; i++ {
				e := format.Extent{OffsetBytes: at, SizeBytes: i * i % 100}
				if keyed {
					e.KeyHash = uint64(i) * 0x9e3779b97f4a7c15
				}
				if i%100 == 7 {
					e.Growth = []int64{i}
				}
				require.NoError(t, x.add(e))
				want, at = append(want, e), at+e.SizeBytes
			}
			require.NoError(t, x.each(func(e format.Extent) error { got = append(got, e); return nil }))
			require.Equal(t, want, got)
			if !keyed {
				require.Len(t, x.encoded, 1000)
			}
		}
	}
}

// watched is a decoder that remembers the memory that its codec charges.
type watched struct {
	format.RangeDecoder
	held int64 // the most for the row group's records
}

func (w *watched) Unwrap() format.Decoder { return w.RangeDecoder }

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.RangeDecoder.Read(p)
	w.held = max(w.held, w.MemoryBytes()-memoryWithout(w.RangeDecoder.(*decoder)))
	return n, err
}

func memoryWithout(d *decoder) int64 {
	held := d.held
	d.held = 0
	defer func() { d.held = held }()
	return d.MemoryBytes()
}

type watchedCodec struct {
	format.RangeCodec
	opened *watched
}

func (c *watchedCodec) NewRangeDecoder(raw io.ReaderAt, sizeBytes int64, start format.RangeStart) format.RangeDecoder {
	c.opened = &watched{RangeDecoder: c.RangeCodec.NewRangeDecoder(raw, sizeBytes, start)}
	return c.opened
}

func TestHeldExtentsAreChargedToTheIndexPassOnly(t *testing.T) {
	data := file(t, "long/l.parquet")
	x, codec := codecOf(t, "l.parquet", spec.Format{})
	c := &watchedCodec{RangeCodec: codec}
	sum, err := format.Scan(context.Background(), x, c, bytes.NewReader(data), int64(len(data)), func(format.Extent) error { return nil }, func() {})
	require.NoError(t, err)
	require.Greater(t, c.opened.held, int64(1500), "two bytes for each of 1500 rows")
	require.Positive(t, sum.DecoderBytes)
	plain, _, err := scan(t, spec.Format{}, "l.parquet", data)
	require.NoError(t, err)
	require.Equal(t, plain.DecoderBytes, sum.DecoderBytes)
}

func TestNamesThatImplyACompressionAreRefused(t *testing.T) {
	x, _ := codecOf(t, "", spec.Format{})
	named := x.(format.Coded).Codec("a.parquet.gz", gzipNamed{}).(format.RangeCodec)
	_, err := named.NewRangeDecoder(bytes.NewReader(nil), 0, format.RangeStart{}).Next()
	require.ErrorContains(t, err, "compressed with gzip")
}

type gzipNamed struct{ format.Codec }

func (gzipNamed) Name() string { return "gzip" }
