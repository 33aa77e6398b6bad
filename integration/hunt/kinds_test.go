package hunt

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// kind is a sort of dataset. All shards have the same number of records, so with shuffle none and a
// contiguous deal to as many workers as shards each worker's stream is one shard.
type kind struct {
	name      string
	ext       string                  // of shards
	streamExt string                  // of streams
	flags     []string                // of the program and of the reference
	records   int                     // of a shard
	shard     func(b *builder)        // makes a shard
	compress  func(b *builder) []byte // nil: uncompressed
}

// file is a file of a dataset; path is relative to its directory.
type file struct {
	path  string
	bytes []byte
}

// builder makes the decoded bytes of a shard.
type builder struct {
	bytes.Buffer
	number  int
	version byte
	records int
	ends    []int // of records
	r       *rand.Rand
}

// add appends n bytes of content.
func (b *builder) add(n int) { b.Write(content(n, b.number, int64(b.Len()), b.version)) }

// end ends a record.
func (b *builder) end() { b.ends = append(b.ends, b.Len()) }

// between draws a number from low to high-1.
func (b *builder) between(low, high int) int { return low + b.r.IntN(high-low) }

// build makes a shard. Sizes are the same in both versions.
func (k kind) build(number int, version byte) *builder {
	b := &builder{number: number, version: version, records: k.records, r: rand.New(rand.NewPCG(uint64(number), 1))}
	k.shard(b)
	return b
}

// files returns the files of a shard.
func (k kind) files(number int, version byte) []file {
	b := k.build(number, version)
	if k.name == folders.name {
		var files []file
		begin := 0
		for i, end := range b.ends {
			files = append(files, file{fmt.Sprintf("d%02d/f%02d.bin", number, i), b.Bytes()[begin:end:end]})
			begin = end
		}
		return files
	}
	content := b.Bytes()
	if k.compress != nil {
		content = k.compress(b)
	}
	return []file{{fmt.Sprintf("s%02d%s", number, k.ext), content}}
}

// shardPath returns the path that identifies a shard in record IDs.
func (k kind) shardPath(number int) string {
	if k.name == folders.name {
		return fmt.Sprintf("d%02d", number)
	}
	return fmt.Sprintf("s%02d%s", number, k.ext)
}

// longBytes is the length of records that are long enough to be lent without copying: more than 8
// KiB, and not a multiple of a page.
const longBytes = 12_500

var (
	long     = kind{"long", ".bin", ".bin", []string{"--format", "fixed", "--record-bytes", fmt.Sprint(longBytes)}, 32, fixedShard, nil}
	lines    = kind{"lines", ".jsonl", ".jsonl", nil, 300, lineShard, nil}
	tars     = kind{"tar", ".tar", ".tar", nil, 28, tarShard, nil}
	frames   = kind{"tfrecord", ".tfrecord", ".tfrecord", nil, 60, frameShard, nil}
	arrays   = kind{"npy", ".npy", ".npy", nil, 80, arrayShard, nil}
	folders  = kind{"files", "", ".tar", []string{"--format", "files"}, 24, folderShard, nil}
	games    = kind{"lc0", ".tar", ".bin", []string{"--format", "lc0"}, gamesOfShard * framesOfGame, gameShard, gameTar}
	linesGz  = kind{"lines.gz", ".jsonl.gz", ".jsonl", nil, 300, lineShard, inMembers(1, gzipMember)}
	linesGzs = kind{"lines.gz of members", ".jsonl.gz", ".jsonl", nil, 300, lineShard, inMembers(6, gzipMember)}
	tarsZst  = kind{"tar.zst", ".tar.zst", ".tar", nil, 28, tarShard, inMembers(1, zstdFrame)}
	tarsZsts = kind{"tar.zst of frames", ".tar.zst", ".tar", nil, 28, tarShard, inMembers(4, zstdFrame)}
	linesLz4 = kind{"lines.lz4", ".jsonl.lz4", ".jsonl", nil, 300, lineShard, inMembers(1, lz4Frame)}
	tarsLz4s = kind{"tar.lz4 of frames", ".tar.lz4", ".tar", nil, 28, tarShard, inMembers(3, lz4Frame)}
)

func fixedShard(b *builder) {
	for range b.records {
		b.add(longBytes)
		b.end()
	}
}

func lineShard(b *builder) {
	for range b.records {
		b.WriteString(`{"t": "`)
		b.add(b.between(600, 1900))
		b.WriteString("\"}\n")
		b.end()
	}
}

func tarShard(b *builder) {
	w := tar.NewWriter(b)
	for i := range b.records {
		n := b.between(4000, 24000)
		must(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%02d-%04d.bin", b.number, i), Mode: 0o644, Size: int64(n), Format: tar.FormatUSTAR}))
		_, err := w.Write(content(n, b.number, int64(b.Len()), b.version))
		must(err)
		must(w.Flush()) // the padding
		b.end()
	}
	must(w.Close())
}

func frameShard(b *builder) {
	for range b.records {
		n := b.between(200, 13000)
		head := binary.LittleEndian.AppendUint64(nil, uint64(n))
		b.Write(binary.LittleEndian.AppendUint32(head, maskedCRC(head)))
		data := content(n, b.number, int64(b.Len()), b.version)
		b.Write(data)
		b.Write(binary.LittleEndian.AppendUint32(nil, maskedCRC(data)))
		b.end()
	}
}

func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xA282EAD8
}

const rowBytes = 5000

func arrayShard(b *builder) {
	head := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }", b.records, rowBytes)
	for (10+len(head)+1)%64 != 0 {
		head += " "
	}
	b.WriteString("\x93NUMPY\x01\x00")
	b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(head)+1)))
	b.WriteString(head + "\n")
	for range b.records {
		b.add(rowBytes)
		b.end()
	}
}

// folderShard makes the files of a directory, one after the other.
func folderShard(b *builder) {
	for range b.records {
		b.add(b.between(3000, 30000))
		b.end()
	}
}

const (
	gamesOfShard, framesOfGame = 4, 10
	gameFrameBytes             = 8356
)

func gameShard(b *builder) {
	for range b.records {
		b.Write([]byte{6, 0, 0, 0})
		b.add(gameFrameBytes - 4)
		b.end()
	}
}

// gameTar compresses each game separately, into a tar.
func gameTar(b *builder) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	decoded := b.Bytes()
	for i := range gamesOfShard {
		packed := gzipMember(decoded[:framesOfGame*gameFrameBytes])
		decoded = decoded[framesOfGame*gameFrameBytes:]
		must(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("training.%d.gz", i), Mode: 0o644, Size: int64(len(packed)), Format: tar.FormatUSTAR}))
		_, err := w.Write(packed)
		must(err)
	}
	must(w.Close())
	return out.Bytes()
}

// inMembers cuts a shard between records and compresses each piece separately.
func inMembers(n int, pack func([]byte) []byte) func(b *builder) []byte {
	return func(b *builder) []byte {
		var out []byte
		begin := 0
		for i := range n {
			end := b.Len()
			if i < n-1 {
				end = b.ends[len(b.ends)*(i+1)/n-1]
			}
			out = append(out, pack(b.Bytes()[begin:end])...)
			begin = end
		}
		return out
	}
}

func gzipMember(data []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	must(err)
	_, err = w.Write(data)
	must(err)
	must(w.Close())
	return b.Bytes()
}

func zstdFrame(data []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	must(err)
	return w.EncodeAll(data, nil)
}

func lz4Frame(data []byte) []byte {
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	must(w.Apply(lz4.ChecksumOption(true), lz4.BlockChecksumOption(false)))
	_, err := w.Write(data)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// must is for calls that can't fail, such as writes to memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
