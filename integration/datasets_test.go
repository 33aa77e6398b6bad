package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/backing"
)

// dataset is a directory of shards, and the flags to read it.
type dataset struct {
	name string
	dir  string // "" for a mixture
	// flags are the format's flags, for both the program and the reference, and those of a mixture.
	flags []string
	// ext is the extension of its streams.
	ext string
}

// shard is a file before compression: its bytes, and where its records end.
type shard struct {
	bytes []byte
	ends  []int
}

// format makes shards. number is the shard's number, so that different shards of a dataset show the
// variants of a format.
type format struct {
	name, ext string
	flags     []string
	// make makes a shard. In some formats a shard also has bytes that are not in any record.
	make func(r *rand.Rand, number int) shard
}

var formats = []format{
	{"tar", ".tar", nil, tarShard},
	{"jsonl", ".jsonl", nil, jsonlShard},
	{"lines", ".txt", []string{"--format", "lines"}, linesShard},
	{"tfrecord", ".tfrecord", nil, tfrecordShard},
	{"npy", ".npy", nil, npyShard},
	{"fixed", ".bin", []string{"--format", "fixed", "--record-bytes", "96"}, fixedShard},
	{"fixed-overlapping", ".bin", []string{"--format", "fixed", "--record-bytes", "96", "--stride-bytes", "64", "--header-bytes", "40"}, fixedShard},
}

// codec compresses a shard. Members may begin where its records end.
type codec struct {
	ext      string
	compress func(r *rand.Rand, s shard) []byte
}

var codecs = []codec{
	{"", func(_ *rand.Rand, s shard) []byte { return s.bytes }},
	{".gz", func(r *rand.Rand, s shard) []byte {
		if r.IntN(3) == 0 { // one member, as gzip(1) writes it
			return gzipMember(s.bytes)
		}
		var out []byte
		for _, piece := range cut(r, s) {
			out = append(out, gzipMember(piece)...)
		}
		if r.IntN(2) == 0 {
			out = append(out, make([]byte, 100)...) // zero bytes after the last
		}
		return out
	}},
	{".zst", func(r *rand.Rand, s shard) []byte {
		out := []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'} // a skippable frame
		pieces := [][]byte{s.bytes}
		if r.IntN(3) != 0 {
			pieces = cut(r, s)
		}
		for i, piece := range pieces {
			out = append(out, zstdFrame(piece, i%2 == 0)...)
		}
		return out
	}},
	{".lz4", func(r *rand.Rand, s shard) []byte {
		pieces := [][]byte{s.bytes}
		if r.IntN(3) != 0 {
			pieces = cut(r, s)
		}
		var out []byte
		for i, piece := range pieces {
			out = append(out, lz4Frame(piece, []lz4.BlockSize{lz4.Block64Kb, lz4.Block4Mb}[i%2], i%3 == 0)...)
		}
		return append(out, 0x5f, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 'a', 'b') // a skippable frame
	}},
}

// cut cuts a shard into pieces, at ends of records and elsewhere.
func cut(r *rand.Rand, s shard) [][]byte {
	var pieces [][]byte
	at := 0
	for i, end := range s.ends {
		switch {
		case i%5 == 4: // an entry point
		case i%7 == 6 && end > at+1: // in the middle of something
			end = at + 1 + r.IntN(end-at-1)
		default:
			continue
		}
		if end > at {
			pieces = append(pieces, s.bytes[at:end])
			at = end
		}
	}
	return append(pieces, s.bytes[at:])
}

// gzipMember uses one of two encoders, depending on the size.
func gzipMember(b []byte) []byte {
	var out bytes.Buffer
	if len(b)%2 == 0 {
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		return out.Bytes()
	}
	w := kgzip.NewWriter(&out)
	w.Name, w.Comment = "a name", "and a comment"
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// zstdFrame makes a frame with or (as from a pipe) without its content size.
func zstdFrame(b []byte, sized bool) []byte {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out)
	if err != nil {
		panic(err)
	}
	if sized {
		return w.EncodeAll(b, nil)
	}
	for i := 0; i < len(b); i += 1000 {
		w.Write(b[i:min(len(b), i+1000)])
	}
	w.Close()
	return out.Bytes()
}

// lz4Frame makes a frame of blocks of the given size, with all possible checksums or only that of
// the content.
func lz4Frame(b []byte, size lz4.BlockSize, all bool) []byte {
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	options := []lz4.Option{lz4.BlockSizeOption(size)}
	if all {
		options = append(options, lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(b))))
	}
	if err := w.Apply(options...); err != nil {
		panic(err)
	}
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// makeDataset writes shards of a format and a codec. The same seed gives the same shards.
func makeDataset(t testing.TB, f format, c codec, shards int, seed uint64) dataset {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range shards {
		name := fmt.Sprintf("part-%d/shard-%04d%s%s", i%2, i, f.ext, c.ext)
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, c.compress(r, f.make(r, i)), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".hidden"+f.ext+c.ext), []byte("not a shard"), 0o644))
	return dataset{name: f.name + c.ext, dir: dir, flags: f.flags, ext: f.ext}
}

func formatNamed(name string) format {
	for _, f := range formats {
		if f.name == name {
			return f
		}
	}
	panic("no format " + name)
}

// plain returns a dataset of a format without compression.
func plain(t testing.TB, name string, shards int) dataset {
	t.Helper()
	return makeDataset(t, formatNamed(name), codecs[0], shards, 7)
}

func jsonlShard(r *rand.Rand, number int) shard {
	var s shard
	if number == 0 {
		s.bytes = append(s.bytes, "\xef\xbb\xbf"...)
	}
	for i := range 30 + r.IntN(20) {
		end := "\n"
		switch {
		case i%7 == 3:
			end = "\r\n"
		case i%11 == 5:
			end = "\n \t\r\n\n"
		}
		s.bytes = fmt.Appendf(s.bytes, `{"shard": %d, "i": %d, "text": %q}%s`, number, i, strings.Repeat("x", r.IntN(300)), end)
		s.ends = append(s.ends, len(s.bytes))
	}
	if number == 1 { // the last line lacks its newline
		s.bytes = append(s.bytes, `{"last": true}`...)
	}
	return s
}

func linesShard(r *rand.Rand, number int) shard {
	var s shard
	for i := range 30 + r.IntN(20) {
		s.bytes = fmt.Appendf(s.bytes, "line %d of %d %s\n", i, number, strings.Repeat("é", r.IntN(40)))
		s.ends = append(s.ends, len(s.bytes))
	}
	return s
}

func fixedShard(r *rand.Rand, _ int) shard {
	var s shard
	for range 30 + r.IntN(20) {
		record := make([]byte, 96)
		for i := range record {
			record[i] = byte(r.Uint32())
		}
		s.bytes = append(s.bytes, record...)
		s.ends = append(s.ends, len(s.bytes))
	}
	return s
}

func tfrecordShard(r *rand.Rand, _ int) shard {
	var s shard
	for range 30 + r.IntN(20) {
		data := make([]byte, r.IntN(900))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		s.bytes = append(s.bytes, tfrecord(data)...)
		s.ends = append(s.ends, len(s.bytes))
	}
	return s
}

// npyShard returns an array of version 1.0, 2.0 or 3.0. They have the same dtype in different
// notations.
func npyShard(r *rand.Rand, number int) shard {
	descr := []string{
		`[('x', '<i4', (5,)), ('é', '|S7')]`, `[("x", "<i4", (5,)), ("é", "|S7")]`, `[ ('x','<i4',( 5 , )) , ('é','|S7'), ]`,
	}[number%3]
	rows := 30 + r.IntN(20)
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': (%d, 3), }%s\n", descr, rows, strings.Repeat(" ", r.IntN(70)))
	s := shard{bytes: append([]byte("\x93NUMPY"), byte(1+number%3), 0)}
	switch number % 3 {
	case 0:
		text = strings.ReplaceAll(text, "é", "\xe9")
		s.bytes = binary.LittleEndian.AppendUint16(s.bytes, uint16(len(text)))
	case 1:
		text = strings.ReplaceAll(text, "é", "\xe9")
		s.bytes = binary.LittleEndian.AppendUint32(s.bytes, uint32(len(text)))
	default: // version 3.0 is UTF-8
		s.bytes = binary.LittleEndian.AppendUint32(s.bytes, uint32(len(text)))
	}
	s.bytes = append(s.bytes, text...)
	for range rows {
		for range 3 * (5*4 + 7) {
			s.bytes = append(s.bytes, byte(r.Uint32()))
		}
		s.ends = append(s.ends, len(s.bytes))
	}
	return s
}

// tfrecord frames data as a TFRecord.
func tfrecord(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}

// backingDataset returns d on a file system that can be made to fail.
func backingDataset(t testing.TB, d dataset, o backing.Options) (dataset, *backing.FileSystem) {
	t.Helper()
	needFUSE(t)
	b := backing.Mount(t, d.dir, o, environment(filepath.Join(scratch, "tmp")))
	d.dir = b.Dir
	return d, b
}
