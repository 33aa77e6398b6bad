package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
)

// CodecSuite is the test suite that every codec passes.
type CodecSuite struct {
	Codec format.Codec
	// Compress makes one member with a checksum.
	Compress func([]byte) []byte
	// Between may be between members, After after the last one. Damage in either need not be
	// detected.
	Between, After []byte
}

// text compresses well, but not to nothing.
func text(n int) []byte {
	var b bytes.Buffer
	for i := uint32(1); b.Len() < n; i = i*1664525 + 1013904223 {
		b.WriteString([]string{"words ", "of ", "different ", "lengths, ", "in ", "no ", "order\n", "\x00\xff"}[i>>29])
	}
	return b.Bytes()[:n]
}

// Run runs the whole suite. If the codec's members can be decoded ahead, it runs that way as well,
// and must give the same results.
func (c CodecSuite) Run(t *testing.T) {
	c.run(t)
	m, ok := c.Codec.(format.MemberCodec)
	if !ok {
		return
	}
	for _, members := range []int64{6, 1} {
		t.Run(fmt.Sprintf("ahead with room for %d", members), func(t *testing.T) {
			room := newRoom(members)
			c.Codec = format.Ahead{MemberCodec: m, InTurn: m, Room: room}
			if members > 1 && c.Between == nil {
				c.run(t)
			}
			t.Run("random members and damage come as they do in turn", func(t *testing.T) { c.asInTurn(t, m) })
			if c.Between == nil {
				t.Run("large members come as they do in turn", func(t *testing.T) { c.largeAsInTurn(t, m) })
			}
			room.requireWhole(t)
		})
	}
}

func (c CodecSuite) run(t *testing.T) {
	parts := [][]byte{text(300), nil, text(1000)[300:], text(5), nil}
	var raw, decoded []byte
	var starts []int64
	for _, p := range parts {
		raw = append(raw, c.Between...)
		starts = append(starts, int64(len(raw)))
		raw = append(raw, c.Compress(p)...)
		decoded = append(decoded, p...)
	}
	body := len(raw)
	raw = append(raw, c.After...)
	t.Run("members come one by one", func(t *testing.T) { c.oneByOne(t, raw, parts, starts) })
	t.Run("members that are not read are passed over", func(t *testing.T) { c.passedOver(t, raw, starts) })
	t.Run("any reader will do", func(t *testing.T) { c.readers(t, raw, decoded) })
	t.Run("cut off anywhere it gives what is whole", func(t *testing.T) { c.cut(t, raw[:body], decoded) })
	t.Run("a flipped bit anywhere is found", func(t *testing.T) { c.flipped(t, raw[:body], decoded) })
	t.Run("errors of reading are no damage", func(t *testing.T) { c.failures(t, raw) })
	t.Run("a closed decoder says so", func(t *testing.T) { c.closed(t, raw) })
	t.Run("a large member takes no more memory", func(t *testing.T) { c.large(t) })
}

func (c CodecSuite) oneByOne(t *testing.T, raw []byte, parts [][]byte, starts []int64) {
	d, err := c.Codec.NewDecoder(bytes.NewReader(raw), 1000)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err, "before the first member")
	for i, p := range parts {
		at, err := d.Next()
		require.NoError(t, err)
		require.Equal(t, 1000+starts[i], at)
		got, err := io.ReadAll(reader{d})
		require.NoError(t, err)
		require.True(t, bytes.Equal(p, got))
	}
	_, err = d.Next()
	require.Equal(t, io.EOF, err)
	_, err = d.Next()
	require.Equal(t, io.EOF, err)
}

func (c CodecSuite) passedOver(t *testing.T, raw []byte, starts []int64) {
	d, err := c.Codec.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer d.Close()
	for i, want := range starts {
		at, err := d.Next()
		require.NoError(t, err)
		require.Equal(t, want, at)
		if i%2 == 0 {
			_, _ = d.Read(make([]byte, 2))
		}
	}
	_, err = d.Next()
	require.Equal(t, io.EOF, err)
}

// reader hides all methods of a decoder except Read.
type reader struct{ d format.Decoder }

func (r reader) Read(p []byte) (int, error) { return r.d.Read(p) }

// all decodes everything; it returns only bytes of members that turned out whole.
func (c CodecSuite) all(t *testing.T, raw io.Reader) ([]byte, error) {
	d, err := c.Codec.NewDecoder(raw, 0)
	require.NoError(t, err)
	defer d.Close()
	var all []byte
	for {
		_, err := d.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		part, err := io.ReadAll(reader{d})
		if err != nil {
			_, again := d.Next()
			require.Equal(t, err, again, "errors are sticky")
			return all, err
		}
		all = append(all, part...)
	}
}

func (c CodecSuite) readers(t *testing.T, raw, decoded []byte) {
	for _, r := range []io.Reader{
		iotest.OneByteReader(bytes.NewReader(raw)),
		iotest.HalfReader(bytes.NewReader(raw)),
		iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		got, err := c.all(t, r)
		require.NoError(t, err)
		require.True(t, bytes.Equal(decoded, got))
	}
}

func (c CodecSuite) cut(t *testing.T, raw, decoded []byte) {
	for n := 0; n < len(raw); n += Stride() {
		got, err := c.all(t, bytes.NewReader(raw[:n]))
		require.True(t, bytes.HasPrefix(decoded, got))
		var damage *format.CorruptError
		if err != nil {
			require.ErrorAs(t, err, &damage)
			require.Less(t, damage.RawOffset, int64(n))
		}
	}
}

func (c CodecSuite) flipped(t *testing.T, raw, decoded []byte) {
	damaged := bytes.Clone(raw)
	for i := 0; i < len(damaged); i += Stride() {
		for bit := range 8 {
			damaged[i] ^= 1 << bit
			got, err := c.all(t, bytes.NewReader(damaged))
			// Some bits have no meaning, such as those of a time. Wrong bytes must never pass.
			require.True(t, bytes.HasPrefix(decoded, got), "byte %d, bit %d", i, bit)
			var damage *format.CorruptError
			if err != nil {
				require.ErrorAs(t, err, &damage)
			}
			damaged[i] ^= 1 << bit
		}
	}
}

func (c CodecSuite) failures(t *testing.T, raw []byte) {
	for n := 0; n < len(raw); n += Stride() {
		_, err := c.all(t, io.MultiReader(bytes.NewReader(raw[:n]), iotest.ErrReader(errFault)))
		require.ErrorIs(t, err, errFault, "after %d bytes", n)
		var damage *format.CorruptError
		require.False(t, errors.As(err, &damage))
	}
}

func (c CodecSuite) closed(t *testing.T, raw []byte) {
	d, err := c.Codec.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	require.Positive(t, d.MemoryBytes())
	d.Close()
	d.Close()
	_, err = d.Next()
	require.ErrorContains(t, err, "closed")
	_, err = d.Read(make([]byte, 1))
	require.ErrorContains(t, err, "closed")
}

func (c CodecSuite) large(t *testing.T) {
	size := int64(64 << 20)
	if testing.Short() {
		size = 24 << 20
	}
	raw := c.Compress(make([]byte, size))
	d, err := c.Codec.NewDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Next()
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, reader{d})
	require.NoError(t, err)
	require.Equal(t, size, n)
	require.Less(t, d.MemoryBytes(), int64(16<<20))
}

// ScanLines indexes a file of compressed lines, and returns the number of lines.
func ScanLines(codec format.Codec, raw []byte) (format.Summary, int, error) {
	n := 0
	s, err := format.Scan(context.Background(), lines.Lines(), codec, bytes.NewReader(raw), int64(len(raw)),
		func(format.Extent) error { n++; return nil }, func() { n = 0 })
	return s, n, err
}

// RequireDamagedTail requires that tail, directly after the frame good, is reported as damage with
// these words as the reason, and that nothing else is lost. good must have two lines of eight bytes
// in total.
func RequireDamagedTail(t *testing.T, codec format.Codec, good, tail []byte, reason string) {
	t.Helper()
	s, n, err := ScanLines(codec, append(bytes.Clone(good), tail...))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NotNil(t, s.Damage)
	require.Contains(t, s.Damage.Reason, reason)
	require.Equal(t, int64(len(good)), s.Damage.RawOffset)
	require.Equal(t, int64(8), s.Damage.OffsetBytes)
	require.Equal(t, int64(8), s.DecodedBytes)
}

// RequireOfProgram requires that a file of two members, written by an external program, is decoded,
// and that both members are found.
func RequireOfProgram(t *testing.T, codec format.Codec, program string, args ...string) {
	t.Helper()
	text := bytes.Repeat([]byte("some line of text\n"), 20_000)
	one := Program(t, t.TempDir(), text, program, args...)
	s, n, err := ScanLines(codec, append(bytes.Clone(one), one...))
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	require.Equal(t, 40_000, n)
	require.Equal(t, []format.Member{{}, {DecodedBytes: int64(len(text)), RawBytes: int64(len(one))}}, s.Members)
}

// RequireSkippableAlone requires that a file of only skippable frames is valid.
func RequireSkippableAlone(t *testing.T, codec format.Codec) {
	t.Helper()
	s, n, err := ScanLines(codec, append(Skippable(0), Skippable(300)...))
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	require.Zero(t, n)
	require.Zero(t, s.DecodedBytes)
}

// RunWithSkippable runs the suite twice: with members alone, and with skippable frames between them
// and after the last one.
func (c CodecSuite) RunWithSkippable(t *testing.T) {
	for name, between := range map[string][]byte{"frames alone": nil, "skippable frames": Skippable(40)} {
		t.Run(name, func(t *testing.T) {
			c.Between, c.After = between, between
			c.Run(t)
		})
	}
}

// FuzzDecoder decodes arbitrary bytes. It requires that nothing panics, that the offsets of members
// ascend, and that decoding ahead gives the same result as decoding in turn.
func FuzzDecoder(f *testing.F, codec format.Codec, seeds ...[]byte) {
	for _, seed := range seeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := codec.NewDecoder(bytes.NewReader(raw), 0)
		require.NoError(t, err)
		defer d.Close()
		decodedBytes := int64(0)
		for last := int64(-1); ; {
			at, err := d.Next()
			if err != nil {
				var damage *format.CorruptError
				require.True(t, err == io.EOF || errors.As(err, &damage))
				break
			}
			require.Greater(t, at, last)
			last = at
			n, _ := io.CopyN(io.Discard, d, 4<<20)
			decodedBytes += n
		}
		if m, ok := codec.(format.MemberCodec); ok && decodedBytes < 4<<20 {
			RequireAheadAsInTurn(t, m, raw)
		}
	})
}
