package zstd_test

import (
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

func TestSuite(t *testing.T) {
	formattest.CodecSuite{Codec: zstd.Codec{}, Compress: formattest.Zstd}.RunWithSkippable(t)
}

// frame returns the beginning of a frame: the magic number, followed by rest.
func frame(rest ...byte) []byte { return append([]byte{0x28, 0xb5, 0x2f, 0xfd}, rest...) }

func TestDamage(t *testing.T) {
	good := formattest.Zstd([]byte("one\ntwo\n"))
	for _, c := range []struct {
		name, reason string
		tail         []byte
	}{
		{"garbage", "no zstd frame begins here", []byte("garbage")},
		{"a few bytes", "ends inside the header of a zstd frame", []byte{0x28, 0xb5}},
		{"a skippable frame that is cut off", "ends inside a skippable zstd frame", formattest.Skippable(100)[:50]},
		{"a skippable frame of 4 GiB", "ends inside a skippable zstd frame", []byte{0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff}},
		{"a window of 2 GiB", "needs a window of 2147483648 bytes", frame(0x00, 21<<3, 0x01, 0x00, 0x00)},
		{"a content of 2^63 bytes in one segment", "needs a window of 9223372036854775808 bytes", frame(0xe0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x00, 0x00)},
		{"a dictionary", "needs dictionary 7", frame(0x01, 0x38, 7, 0x01, 0x00, 0x00)},
		{"a reserved bit", "header is invalid", frame(0x28, 0, 0, 0, 0)},
		{"a reserved block", "a block has a reserved type", frame(0x20, 0x00, 0x07, 0x00, 0x00)},
		{"no blocks", "ends inside a zstd frame", frame(0x20, 0x00)},
		{"another checksum", "checksum does not match", append(good[:len(good)-1:len(good)-1], good[len(good)-1]^1)},
		{"no checksum", "ends inside a zstd frame", good[:len(good)-4]},
	} {
		t.Run(c.name, func(t *testing.T) { formattest.RequireDamagedTail(t, zstd.Codec{}, good, c.tail, c.reason) })
	}
}

func TestSkippableFramesAloneAreValid(t *testing.T) {
	formattest.RequireSkippableAlone(t, zstd.Codec{})
}

func TestCommandLineTool(t *testing.T) {
	for _, args := range [][]string{{"-c"}, {"-c", "-19"}, {"-c", "--no-check"}, {"-c", "--long=27"}, {"-c", "-B65536", "-T2"}} {
		formattest.RequireOfProgram(t, zstd.Codec{}, "zstd", args...)
	}
}

func FuzzDecoder(f *testing.F) {
	member := formattest.Zstd([]byte("some text, some text"))
	formattest.FuzzDecoder(f, zstd.Codec{},
		member,
		append(formattest.Skippable(3), member...),
		frame(0x20, 0x05, 0x2b, 0x00, 0x00, 'x'))
}
