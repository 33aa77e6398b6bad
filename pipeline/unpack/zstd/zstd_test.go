package zstd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lines"
	"github.com/lsiofs/lsiofs/pipeline/unpack/unpacktest"
	"github.com/lsiofs/lsiofs/pipeline/unpack/zstd"
)

func TestSuite(t *testing.T) {
	for name, between := range map[string][]byte{"frames alone": nil, "skippable frames": unpacktest.Skippable(40)} {
		t.Run(name, func(t *testing.T) {
			unpacktest.CodecSuite{Codec: zstd.Codec{}, Compress: unpacktest.Zstd, Between: between, After: between}.Run(t)
		})
	}
}

func scan(raw []byte) (unpack.Summary, int, error) {
	n := 0
	s, err := unpack.Scan(context.Background(), lines.Lines(), zstd.Codec{}, bytes.NewReader(raw), int64(len(raw)),
		func(unpack.Extent) error { n++; return nil }, func() { n = 0 })
	return s, n, err
}

// frame is a header without content: a magic, a descriptor and what follows.
func frame(rest ...byte) []byte { return append([]byte{0x28, 0xb5, 0x2f, 0xfd}, rest...) }

func TestDamage(t *testing.T) {
	good := unpacktest.Zstd([]byte("one\ntwo\n"))
	for _, c := range []struct {
		name, reason string
		tail         []byte
	}{
		{"garbage", "neither a zstd frame nor a skippable one", []byte("garbage")},
		{"a few bytes", "ends inside the header of a zstd frame", []byte{0x28, 0xb5}},
		{"a skippable frame that is cut off", "ends inside a skippable zstd frame", unpacktest.Skippable(100)[:50]},
		{"a skippable frame of 4 GiB", "ends inside a skippable zstd frame", []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}},
		{"a window of 2 GiB", "needs a window of 2147483648 bytes", frame(0x00, 21<<3, 0x01, 0x00, 0x00)},
		{"a content of 2^63 bytes in one segment", "needs a window of 9223372036854775808 bytes", frame(0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x00, 0x00)},
		{"a dictionary", "needs dictionary 7", frame(0x01, 0x38, 7, 0x01, 0x00, 0x00)},
		{"a reserved bit", "header is invalid", frame(0x28, 0, 0, 0, 0)},
		{"a reserved block", "block of a reserved type", frame(0x20, 0x00, 0x07, 0x00, 0x00)},
		{"no blocks", "ends inside a zstd frame", frame(0x20, 0x00)},
		{"another checksum", "checksum does not match", append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1)},
		{"no checksum", "ends inside a zstd frame", good[:len(good)-4]},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n, err := scan(append(bytes.Clone(good), c.tail...))
			require.NoError(t, err)
			require.Equal(t, 2, n)
			require.NotNil(t, s.Damage)
			require.Contains(t, s.Damage.Reason, c.reason)
			require.Equal(t, int64(len(good)), s.Damage.RawOffset)
			require.Equal(t, int64(8), s.Damage.OffsetBytes)
			require.Equal(t, int64(8), s.DecodedBytes)
		})
	}
}

func TestNothingButSkippableFramesIsSound(t *testing.T) {
	s, n, err := scan(append(unpacktest.Skippable(0), unpacktest.Skippable(300)...))
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	require.Zero(t, n)
	require.Zero(t, s.DecodedBytes)
}

func TestTheProgram(t *testing.T) {
	text := bytes.Repeat([]byte("some line of text\n"), 20_000)
	for _, args := range [][]string{{"-c"}, {"-c", "-19"}, {"-c", "--no-check"}, {"-c", "--long=27"}, {"-c", "-B65536", "-T2"}} {
		one := unpacktest.Program(t, t.TempDir(), text, "zstd", args...)
		s, n, err := scan(append(bytes.Clone(one), one...))
		require.NoError(t, err)
		require.Nil(t, s.Damage)
		require.Equal(t, 40_000, n)
		require.Equal(t, []unpack.Member{{}, {DecodedBytes: int64(len(text)), RawBytes: int64(len(one))}}, s.Members)
	}
}

// FuzzDecoder decodes any bytes: nothing breaks, places of frames ascend, and frames
// that are decoded ahead are what they are in turn.
func FuzzDecoder(f *testing.F) {
	member := unpacktest.Zstd([]byte("some text, some text"))
	f.Add(member)
	f.Add(append(unpacktest.Skippable(3), member...))
	f.Add(frame(0x20, 0x05, 0x2b, 0x00, 0x00, 'x'))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := zstd.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
		require.NoError(t, err)
		defer d.Close()
		decodedBytes := int64(0)
		for last := int64(-1); ; {
			at, err := d.Next()
			if err != nil {
				var damage *unpack.CorruptError
				require.True(t, err == io.EOF || errors.As(err, &damage))
				break
			}
			require.Greater(t, at, last)
			last = at
			n, _ := io.CopyN(io.Discard, d, 4<<20)
			decodedBytes += n
		}
		if decodedBytes < 4<<20 {
			unpacktest.RequireAheadAsInTurn(t, zstd.Codec{}, raw)
		}
	})
}
