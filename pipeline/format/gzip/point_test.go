package gzip_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
)

// leastPoint is the least distance of points.
const leastPoint = 128 << 10

// texts returns decoded bytes of several kinds, some MB each.
func texts(dice *rand.Rand) map[string][]byte {
	random := make([]byte, 1_000_000)
	for i := range random {
		random[i] = byte(dice.Uint32())
	}
	var words, frames []byte
	for len(words) < 1_200_000 {
		words = fmt.Appendf(words, "{\"id\": %d, \"text\": \"%x %x\"}\n", dice.IntN(1e6), dice.IntN(4000), dice.IntN(1<<30))
	}
	for len(frames) < 2_000_000 {
		frames = append(frames, bytes.Repeat([]byte{0, 0, 0, byte(dice.IntN(3))}, 1+dice.IntN(300))...)
		frames = append(frames, random[dice.IntN(1000):][:dice.IntN(20)]...)
	}
	return map[string][]byte{"random": random, "words": words, "frames": frames, "zeros": make([]byte, 1_000_000)}
}

// compress makes a member, with occasional flushes, which end blocks.
func compress(t testing.TB, text []byte, level int, dice *rand.Rand) []byte {
	var out bytes.Buffer
	w, err := stdgzip.NewWriterLevel(&out, level)
	require.NoError(t, err)
	for len(text) > 0 {
		n := min(len(text), 1+dice.IntN(150_000))
		_, err := w.Write(text[:n])
		require.NoError(t, err)
		require.NoError(t, w.Flush())
		text = text[n:]
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// notePoints reads a file in portions, and notes points at least that many bytes apart.
func notePoints(t *testing.T, raw io.Reader, least int64) (points []format.Point, decoded []byte) {
	var starts []int64 // of members, in decoded
	d, err := gzip.Codec{}.NewDecoder(raw, 0)
	require.NoError(t, err)
	defer d.Close()
	d.(format.PointDecoder).NotePoints(least, func(p format.Point) int64 {
		p.DecodedBytes = starts[len(starts)-1] + p.MemberBytes
		points = append(points, p)
		return least
	})
	for {
		starts = append(starts, int64(len(decoded)))
		if _, err := d.Next(); err == io.EOF {
			return points, decoded
		} else {
			require.NoError(t, err)
		}
		member, err := io.ReadAll(decoderReader{d})
		require.NoError(t, err)
		decoded = append(decoded, member...)
	}
}

// fileOfTexts returns members of all texts, concatenated.
func fileOfTexts(t testing.TB, dice *rand.Rand) (raw, decoded []byte) {
	for _, text := range texts(dice) {
		raw = append(raw, compress(t, text, []int{1, 6, 9, stdgzip.HuffmanOnly, stdgzip.NoCompression}[dice.IntN(5)], dice)...)
		decoded = append(decoded, text...)
	}
	return raw, decoded
}

func TestDecodingContinuesAtEachPoint(t *testing.T) {
	for seed := range uint64(4) {
		dice := rand.New(rand.NewPCG(seed, 3))
		raw, want := fileOfTexts(t, dice)
		points, decoded := notePoints(t, bytes.NewReader(raw), leastPoint)
		require.True(t, bytes.Equal(want, decoded))
		require.Greater(t, len(points), 10)
		for i, p := range points {
			require.LessOrEqual(t, len(p.State), format.MaxStateBytes)
			d, err := gzip.Codec{}.NewDecoderAt(bytes.NewReader(raw[p.RawBytes():]), p)
			require.NoError(t, err)
			start := p.DecodedBytes - p.MemberBytes
			d.(format.PointDecoder).Expect(func(memberBytes int64) (format.Point, bool) { return behind(points, start+memberBytes) })
			at, err := d.Next()
			require.NoError(t, err)
			require.Equal(t, p.MemberRawBytes, at)
			var got []byte
			for err == nil {
				var member []byte
				member, err = io.ReadAll(decoderReader{d})
				require.NoError(t, err)
				got = append(got, member...)
				start = p.DecodedBytes + int64(len(got))
				_, err = d.Next()
			}
			require.Equal(t, io.EOF, err)
			require.True(t, bytes.Equal(want[p.DecodedBytes:], got), "point %d", i)
			d.Close()
		}
	}
}

// behind returns the first point after that many decoded bytes.
func behind(points []format.Point, decoded int64) (format.Point, bool) {
	for _, p := range points {
		if p.DecodedBytes > decoded {
			return p, true
		}
	}
	return format.Point{}, false
}

func TestPointsDoNotDependOnReadSize(t *testing.T) {
	raw, _ := fileOfTexts(t, rand.New(rand.NewPCG(1, 4)))
	want, _ := notePoints(t, bytes.NewReader(raw), leastPoint)
	require.NotEmpty(t, want)
	for _, reader := range []io.Reader{
		iotest.OneByteReader(bytes.NewReader(raw)), iotest.HalfReader(bytes.NewReader(raw)), iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		got, _ := notePoints(t, reader, leastPoint)
		require.True(t, reflect.DeepEqual(want, got))
	}
}

// Bytes to which nothing refers take no space.
func TestWindowStoresOnlyReferencedBytes(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 5))
	text := make([]byte, 8<<20) // without repetitions
	for i := range text {
		text[i] = byte(dice.Uint32())
	}
	points, _ := notePoints(t, bytes.NewReader(compress(t, text, 6, dice)), leastPoint)
	require.NotEmpty(t, points)
	for _, p := range points {
		require.Less(t, len(p.State), 400)
	}
}

// expecting decodes a file of one member whose points are known, in reads of size bytes.
func expecting(t *testing.T, raw []byte, points []format.Point, size int) (decoded []byte, err error) {
	d, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer d.Close()
	d.(format.PointDecoder).Expect(func(memberBytes int64) (format.Point, bool) { return behind(points, memberBytes) })
	if _, err = d.Next(); err != nil {
		return nil, err
	}
	p := make([]byte, size)
	for {
		n, err := d.Read(p)
		decoded = append(decoded, p[:n]...)
		if err != nil {
			return decoded, err
		}
	}
}

func TestMismatchBetweenPointsIsDamageBeforeEndOfMember(t *testing.T) {
	dice := rand.New(rand.NewPCG(2, 6))
	text := texts(dice)["random"]
	raw := compress(t, text, stdgzip.NoCompression, dice)
	points, _ := notePoints(t, bytes.NewReader(raw), leastPoint)
	require.Greater(t, len(points), 3)
	decoded, err := expecting(t, raw, points, 1000)
	require.Equal(t, io.EOF, err)
	require.True(t, bytes.Equal(text, decoded))

	flipped := slices.Clone(raw)
	flipped[bytes.Index(raw, text[700_000:700_100])] ^= 1 // only the checksum detects it
	decoded, err = expecting(t, flipped, points, 1000)
	var damage *format.CorruptError
	require.ErrorAs(t, err, &damage)
	require.Contains(t, damage.Reason, "when it was indexed")
	next := points[slices.IndexFunc(points, func(p format.Point) bool { return p.MemberBytes > 700_000 })]
	require.Less(t, int64(len(decoded)), next.MemberBytes+1, "nothing behind the point has come")

	for _, change := range []func(*format.Point){
		func(p *format.Point) { p.CRC32++ },
		func(p *format.Point) { p.RawBits++ },
		func(p *format.Point) { p.MemberBytes++ },
	} {
		wrong := slices.Clone(points)
		change(&wrong[1])
		_, err := expecting(t, raw, wrong, 1000)
		require.ErrorAs(t, err, &damage)
	}
}

func TestReaderAtPointCanVerifyIt(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 7))
	text := texts(dice)["words"]
	raw := compress(t, text, 6, dice)
	points, _ := notePoints(t, bytes.NewReader(raw), leastPoint)
	for _, shift := range []uint32{0, 1} {
		for i, p := range points {
			expected := slices.Clone(points[i : i+1])
			expected[0].CRC32 += shift
			d, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
			require.NoError(t, err)
			pd := d.(format.PointDecoder)
			pd.Expect(func(memberBytes int64) (format.Point, bool) { return expected[0], memberBytes < p.MemberBytes })
			_, err = d.Next()
			require.NoError(t, err)
			_, err = io.CopyN(io.Discard, decoderReader{d}, p.MemberBytes)
			if err == nil {
				err = pd.AtPoint()
			}
			if shift == 0 {
				require.NoError(t, err)
				rest, err := io.ReadAll(decoderReader{d})
				require.NoError(t, err)
				require.True(t, bytes.Equal(text[p.MemberBytes:], rest))
			} else {
				var damage *format.CorruptError
				require.ErrorAs(t, err, &damage)
			}
			d.Close()
		}
	}
}

func TestPointWithoutItsWindowIsRefused(t *testing.T) {
	for _, state := range [][]byte{nil, []byte("window"), bytes.Repeat([]byte{1}, 100)} {
		_, err := gzip.Codec{}.NewDecoderAt(bytes.NewReader(nil), format.Point{MemberBytes: 1, State: state})
		require.ErrorContains(t, err, "makes the index again")
	}
	_, err := gzip.Codec{}.NewDecoderAt(bytes.NewReader(nil), format.Point{MemberBytes: -1})
	require.Error(t, err)
}

// Empty blocks, of which a file may have any number, end the memory of a point.
func TestManyEmptyBlocksMakeNoPoint(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 8))
	var out bytes.Buffer
	w, err := stdgzip.NewWriterLevel(&out, 6)
	require.NoError(t, err)
	write := func(p []byte) {
		_, err := w.Write(p)
		require.NoError(t, err)
		require.NoError(t, w.Flush())
	}
	text := texts(dice)["words"]
	write(text[:100_000])
	for range 300_000 {
		require.NoError(t, w.Flush())
	}
	write(text[100_000:])
	require.NoError(t, w.Close())
	points, decoded := notePoints(t, bytes.NewReader(out.Bytes()), leastPoint)
	require.True(t, bytes.Equal(text, decoded))
	require.NotEmpty(t, points)
	for i := 1; i < len(points); i++ {
		require.Greater(t, points[i].MemberBytes, points[i-1].MemberBytes)
	}
}

func TestFailedFileHasOnlyPointsBeforeFailure(t *testing.T) {
	dice := rand.New(rand.NewPCG(serve.Seed(t), 4))
	raw, _ := fileOfTexts(t, dice)
	want, _ := notePoints(t, bytes.NewReader(raw), leastPoint)
	for range 50 {
		at := dice.IntN(len(raw))
		d, err := gzip.Codec{}.NewDecoder(io.MultiReader(bytes.NewReader(raw[:at]), iotest.ErrReader(errStorage)), 0)
		require.NoError(t, err)
		var got []format.Point
		d.(format.PointDecoder).NotePoints(leastPoint, func(p format.Point) int64 {
			p.DecodedBytes = want[len(got)].DecodedBytes // unknown to the decoder
			got = append(got, p)
			return leastPoint
		})
		for err == nil {
			_, err = d.Next()
		}
		require.True(t, errors.Is(err, errStorage))
		require.True(t, len(got) == 0 || reflect.DeepEqual(want[:len(got)], got))
		d.Close()
	}
	d, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	d.(format.PointDecoder).NotePoints(math.MaxInt64, func(format.Point) int64 { t.Error("none is far enough"); return 0 })
	for err == nil {
		_, err = d.Next()
	}
	require.Equal(t, io.EOF, err)
}
