package gzip_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/gzip"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lines"
	"github.com/lsiofs/lsiofs/pipeline/unpack/unpacktest"
)

func TestSuite(t *testing.T) {
	unpacktest.CodecSuite{Codec: gzip.Codec{}, Compress: unpacktest.Gzip, After: make([]byte, 100)}.Run(t)
}

func scan(raw []byte) (unpack.Summary, int, error) {
	n := 0
	s, err := unpack.Scan(context.Background(), lines.Lines(), gzip.Codec{}, bytes.NewReader(raw), int64(len(raw)),
		func(unpack.Extent) error { n++; return nil }, func() { n = 0 })
	return s, n, err
}

func TestWhatFollowsTheLastMember(t *testing.T) {
	member := unpacktest.Gzip([]byte("one\ntwo\n"))
	for _, c := range []struct {
		name   string
		tail   []byte
		damage int // how far behind the member; -1: none
	}{
		{"nothing", nil, -1},
		{"one zero", make([]byte, 1), -1},
		{"many zeros", make([]byte, 600_000), -1},
		{"garbage", []byte("garbage"), 0},
		{"half a member's magic", []byte{0x1f}, 0},
		{"garbage behind zeros", append(make([]byte, 300_000), 'x'), 300_000},
		{"a member behind zeros", append(make([]byte, 5), member...), 5},
		{"a member's first half", member[:15], 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n, err := scan(append(bytes.Clone(member), c.tail...))
			require.NoError(t, err)
			require.Equal(t, 2, n)
			require.Equal(t, int64(8), s.DecodedBytes)
			require.Equal(t, []unpack.Member{{}}, s.Members)
			if c.damage < 0 {
				require.Nil(t, s.Damage)
				return
			}
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(len(member)+c.damage), s.Damage.RawOffset)
			require.Equal(t, int64(8), s.Damage.OffsetBytes)
			require.Equal(t, int64(2), s.Damage.Record)
		})
	}
}

func TestFilesThatAreNoGzip(t *testing.T) {
	for _, raw := range [][]byte{[]byte("text\n"), make([]byte, 100), {0x1f, 0x8b}, {0x1f, 0x8b, 9, 0, 0, 0, 0, 0, 0, 0, 0}} {
		s, n, err := scan(raw)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NotNil(t, s.Damage)
		require.Zero(t, s.Damage.RawOffset)
	}
}

func TestOtherPrograms(t *testing.T) {
	text := bytes.Repeat([]byte("some line of text\n"), 20_000)
	for _, program := range []string{"gzip", "pigz"} {
		t.Run(program, func(t *testing.T) {
			one := unpacktest.Program(t, t.TempDir(), text, program, "-c")
			s, n, err := scan(append(bytes.Clone(one), one...))
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			require.Equal(t, 40_000, n)
			require.Equal(t, []unpack.Member{{}, {DecodedBytes: int64(len(text)), RawBytes: int64(len(one))}}, s.Members)
		})
	}
}

func FuzzDecoder(f *testing.F) {
	member := unpacktest.Gzip([]byte("some text, some text"))
	f.Add(member)
	f.Add(append(bytes.Clone(member), member...))
	f.Add(append(bytes.Clone(member), 0, 0, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
		require.NoError(t, err)
		defer d.Close()
		for last := int64(-1); ; {
			at, err := d.Next()
			if err != nil {
				var damage *unpack.CorruptError
				require.True(t, err == io.EOF || errors.As(err, &damage))
				return
			}
			require.Greater(t, at, last)
			last = at
			_, _ = io.CopyN(io.Discard, d, 1<<20)
		}
	})
}
