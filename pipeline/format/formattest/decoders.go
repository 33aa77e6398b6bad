package formattest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
)

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
