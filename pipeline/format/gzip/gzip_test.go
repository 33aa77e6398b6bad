package gzip_test

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
)

func TestSuite(t *testing.T) {
	formattest.CodecSuite{Codec: gzip.Codec{}, Compress: formattest.Gzip, After: make([]byte, 100)}.Run(t)
}

func scan(raw []byte) (format.Summary, int, error) { return formattest.ScanLines(gzip.Codec{}, raw) }

func TestBytesAfterLastMember(t *testing.T) {
	member := formattest.Gzip([]byte("one\ntwo\n"))
	for _, c := range []struct {
		name   string
		tail   []byte
		damage int // how far after the member; -1: none
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
			require.Equal(t, []format.Member{{}}, s.Members)
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

func TestNonGzipFiles(t *testing.T) {
	for _, raw := range [][]byte{[]byte("text\n"), make([]byte, 100), {0x1f, 0x8b}, {0x1f, 0x8b, 9, 0, 0, 0, 0, 0, 0, 0, 0}} {
		s, n, err := scan(raw)
		require.NoError(t, err)
		require.Zero(t, n)
		require.NotNil(t, s.Damage)
		require.Zero(t, s.Damage.RawOffset)
	}
}

func TestOtherPrograms(t *testing.T) {
	for _, program := range []string{"gzip", "pigz"} {
		t.Run(program, func(t *testing.T) { formattest.RequireOfProgram(t, gzip.Codec{}, program, "-c") })
	}
}

func FuzzDecoder(f *testing.F) {
	member := formattest.Gzip([]byte("some text, some text"))
	formattest.FuzzDecoder(f, gzip.Codec{},
		member,
		append(bytes.Clone(member), member...),
		append(bytes.Clone(member), 0, 0, 1))
}

// A writer that is flushed repeatedly writes empty blocks. Any number of them may follow each
// other.
func TestEmptyBlocksEndNothing(t *testing.T) {
	var b bytes.Buffer
	w := stdgzip.NewWriter(&b)
	for range 200_000 {
		require.NoError(t, w.Flush())
	}
	_, err := w.Write([]byte("text"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	d, err := gzip.Codec{}.NewDecoder(&b, 0)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Next()
	require.NoError(t, err)
	text, err := io.ReadAll(decoderReader{d})
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
}

// The reference refuses them; gzip and Python read them.
func TestHeadersMayBeLong(t *testing.T) {
	whole := formattest.Gzip([]byte("inside"))
	for _, flags := range []byte{8, 16, 8 | 2, 16 | 2} {
		for _, n := range []int{511, 512, 513, 1024, 1 << 20} {
			head := append(slices.Clone(whole[:10]), bytes.Repeat([]byte{'n'}, n)...)
			head[3] = flags
			head = append(head, 0)
			if flags&2 != 0 {
				head = binary.LittleEndian.AppendUint16(head, uint16(crc32.ChecksumIEEE(head)))
			}
			raw := append(head, whole[10:]...)
			d, err := gzip.Codec{}.NewDecoder(bytes.NewReader(raw), 0)
			require.NoError(t, err)
			_, err = d.Next()
			require.NoError(t, err, "%d bytes", n)
			got, err := io.ReadAll(decoderReader{d})
			require.NoError(t, err)
			require.Equal(t, "inside", string(got))
			d.Close()

			d, err = gzip.Codec{}.NewDecoder(bytes.NewReader(raw[:n]), 0)
			require.NoError(t, err)
			_, err = d.Next()
			require.ErrorContains(t, err, "ends inside")
			d.Close()
		}
	}
}
