package lz4_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
)

func TestSuite(t *testing.T) {
	formattest.CodecSuite{Codec: lz4.Codec{}, Compress: formattest.LZ4}.RunWithSkippable(t)
}

func scan(raw []byte) (format.Summary, int, error) { return formattest.ScanLines(lz4.Codec{}, raw) }

// frame returns the magic number of a frame, followed by rest.
func frame(rest ...byte) []byte { return append([]byte{0x04, 0x22, 0x4d, 0x18}, rest...) }

// legacyFrame returns a frame of the legacy format with one block; size may be wrong.
func legacyFrame(size uint32, block string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte{0x02, 0x21, 0x4c, 0x18}, size), block...)
}

// changed returns a frame with one byte xored.
func changed(frame []byte, at int, by byte) []byte {
	frame = bytes.Clone(frame)
	frame[(at+len(frame))%len(frame)] ^= by
	return frame
}

func TestDamage(t *testing.T) {
	good := formattest.LZ4([]byte("one\ntwo\n"))
	for _, c := range []struct {
		name, reason string
		tail         []byte
	}{
		{"garbage", "no lz4 frame begins here", []byte("garbage")},
		{"two bytes", "ends inside the header of an lz4 frame", good[:2]},
		{"a magic", "ends inside the header of an lz4 frame", good[:4]},
		{"a header with its last byte missing", "ends inside the header of an lz4 frame", good[:6]},
		{"a header without its content size", "ends inside the header of an lz4 frame", frame(0x68, 0x40, 1, 2, 3)},
		{"a skippable frame's magic", "ends inside the header of a skippable lz4 frame", formattest.Skippable(9)[:6]},
		{"a skippable frame that is cut off", "ends inside a skippable lz4 frame", formattest.Skippable(100)[:50]},
		{"a skippable frame of 4 GiB", "ends inside a skippable lz4 frame", []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}},
		{"a legacy frame that is cut", "ends inside an lz4 frame", legacyFrame(100, "1234")},
		{"a legacy frame that is cut after a block's size", "ends inside an lz4 frame", legacyFrame(100, "")},
		{"a legacy frame that is cut inside a block's size", "ends inside an lz4 frame", legacyFrame(100, "")[:6]},
		{"a legacy block of 16 MiB", "can't be decoded: a block has 16777216 bytes", legacyFrame(16<<20, "1234")},
		{"a legacy block that refers to bytes before it", "can't be decoded", legacyFrame(11, "\x10x\x64\x00\x50abcde\x00")},
		{"a dictionary", "needs dictionary 7", frame(0x61, 0x40, 7, 0, 0, 0, 0)},
		{"a size of blocks that there is not", "its block size has the code 3", frame(0x60, 0x30, 0)},
		{"another checksum of the header", "header does not match its checksum", changed(good, 6, 1)},
		{"a version to come", "header does not match its checksum", changed(good, 4, 0xc0)},
		{"a block above the size of blocks", "can't be decoded", append(bytes.Clone(good[:7]), 0xff, 0xff, 0xff, 0x7f)},
		{"another checksum of a block", "a block of the lz4 frame does not match its checksum", changed(good, 19, 1)},
		{"another checksum", "frame's checksum does not match its bytes", changed(good, -1, 1)},
		{"another content size", "decoded size is not the one in its header", sized(t, 9)},
		{"no checksum", "ends inside an lz4 frame", good[:len(good)-4]},
		{"no end mark", "ends inside an lz4 frame", good[:len(good)-8]},
	} {
		t.Run(c.name, func(t *testing.T) { formattest.RequireDamagedTail(t, lz4.Codec{}, good, c.tail, c.reason) })
	}
}

// sized returns a frame with eight bytes in a stored block and size as the content size.
func sized(t *testing.T, size byte) []byte {
	for sum := range 256 { // the header's checksum is found by trial
		b := frame(0x68, 0x40, size, 0, 0, 0, 0, 0, 0, 0, byte(sum), 8, 0, 0, 0x80, '1', '\n', '3', '4', '5', '6', '7', '\n', 0, 0, 0, 0)
		s, _, err := scan(b)
		require.NoError(t, err)
		if s.Damage == nil || !strings.Contains(s.Damage.Reason, "header does not match its checksum") {
			return b
		}
	}
	t.Fatal("no checksum fits")
	return nil
}

func TestStoredBlockOfDeclaredMaximumSizeIsValid(t *testing.T) {
	s, n, err := scan(sized(t, 8))
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	require.Equal(t, 2, n)
}

func TestSkippableFramesAloneAreValid(t *testing.T) {
	formattest.RequireSkippableAlone(t, lz4.Codec{})
}

// A text with matches at all distances up to 64 KiB, for linked blocks.
func text() []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for range 30_000 {
		if n := len(b); n > 70_000 && r.IntN(3) > 0 {
			at := n - 1 - r.IntN(65_000)
			b = append(b, b[at:min(n, at+r.IntN(200))]...)
		} else {
			for range r.IntN(100) {
				b = append(b, byte('a'+r.IntN(20)))
			}
		}
		b = append(b, '\n')
	}
	return b
}

var programFlags = map[string][]string{
	"as it comes": {"-c"}, "level 9": {"-c", "-9"}, "blocks of 64 KiB": {"-c", "-B4"}, "blocks of 4 MiB": {"-c", "-B7"},
	"linked blocks": {"-c", "-B4", "-BD"}, "linked blocks of 4 MiB, checksums": {"-c", "-B7", "-BD", "-BX"},
	"no checksum": {"-c", "--no-frame-crc"}, "content size": {"-c", "--content-size"}, "legacy": {"-c", "-l"},
}

func TestCommandLineTool(t *testing.T) {
	text := text()
	for name, args := range programFlags {
		t.Run(name, func(t *testing.T) {
			one := formattest.Program(t, t.TempDir(), text, "lz4", args...)
			raw := append(bytes.Clone(one), one...)
			s, _, err := scan(raw)
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			require.Equal(t, int64(2*len(text)), s.DecodedBytes)
			require.Equal(t, []format.Member{{}, {DecodedBytes: int64(len(text)), RawBytes: int64(len(one))}}, s.Members)
			for _, m := range s.Members {
				require.True(t, bytes.Equal(append(bytes.Clone(text), text...)[m.DecodedBytes:], decoded(t, raw, format.Entry{RawBytes: m.RawBytes, DecodedBytes: m.DecodedBytes})))
			}
		})
	}
}

func decoded(t *testing.T, raw []byte, at format.Entry) []byte {
	d, err := format.NewDecoded(lz4.Codec{}, bytes.NewReader(raw), int64(len(raw)), at)
	require.NoError(t, err)
	defer d.Close()
	all, err := io.ReadAll(d)
	require.NoError(t, err)
	require.Less(t, d.MemoryBytes(), int64(21<<20))
	return all
}

// The golden files were made from goldenText with `lz4 -B4 -BX`, `lz4 -B4 -BD --content-size` and
// `lz4 -l` 1.9.4.
func goldenText() []byte {
	var b []byte
	for i := range 6000 {
		b = fmt.Appendf(b, "line %d, %d\n", i, i*i%977)
	}
	return b
}

func TestGoldenFilesOfCommandLineTool(t *testing.T) {
	golden := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		return b
	}
	for _, name := range []string{"checksums.lz4", "linked.lz4", "legacy.lz4"} {
		require.True(t, bytes.Equal(goldenText(), decoded(t, golden(name), format.Entry{})), name)
	}
}

// A legacy frame has no end mark: it ends where any other frame begins.
func TestLegacyFramesEndWhereNextFrameStarts(t *testing.T) {
	text := bytes.Repeat(text(), 1+(17<<20)/len(text())) // three blocks
	old := formattest.Program(t, t.TempDir(), text, "lz4", "-c", "-l")
	other := formattest.LZ4([]byte("one\ntwo\n"))
	raw := slices.Concat(old, formattest.Skippable(9), old, other, old[:4], old)
	s, _, err := scan(raw)
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	require.EqualValues(t, 3*len(text)+8, s.DecodedBytes)
	require.Len(t, s.Members, 5, "one of them without a block")
	require.True(t, bytes.Equal(slices.Concat(text, text, []byte("one\ntwo\n"), text), decoded(t, raw, format.Entry{})))
	last := s.Members[len(s.Members)-1]
	require.True(t, bytes.Equal(text, decoded(t, raw, format.Entry{RawBytes: last.RawBytes, DecodedBytes: last.DecodedBytes})))
}

// A linked block that refers to bytes before its frame is damage wherever decoding begins, even
// after another frame of linked blocks.
func TestFrameCannotReferToPrecedingFrame(t *testing.T) {
	before := formattest.Program(t, t.TempDir(), text(), "lz4", "-c", "-B4", "-BD", "--no-frame-crc")
	// One literal, then four bytes from 100 bytes back.
	bad := frame(0x40, 0x40, 0xc0, 10, 0, 0, 0, 0x10, 'x', 100, 0, 0x50, 'a', 'b', 'c', 'd', 'e', 0, 0, 0, 0)
	for name, raw := range map[string][]byte{"alone": bad, "behind another": append(before, bad...)} {
		t.Run(name, func(t *testing.T) {
			s, _, err := scan(raw)
			require.NoError(t, err)
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(len(raw)-len(bad)), s.Damage.RawOffset)
			require.Contains(t, s.Damage.Reason, "can't be decoded")
		})
	}
}

func FuzzDecoder(f *testing.F) {
	member := formattest.LZ4([]byte("some text, some text"))
	formattest.FuzzDecoder(f, lz4.Codec{},
		member,
		append(formattest.Skippable(3), member...),
		frame(0x60, 0x40, 0x82, 1, 0, 0, 0x80, 'x', 0, 0, 0, 0))
}
