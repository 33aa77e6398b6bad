package soak

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// dataset is a directory of shards, and what the model knows of it: the records
// as they were when the shards were made.
type dataset struct {
	name, dir string
	ext       string   // ending of its streams
	flags     []string // the format's, for the program and the reference alike
	records   map[string][]byte
	epilogue  []byte
}

// shard is one file before compression, and its records.
type shard struct {
	bytes   []byte
	records [][]byte
}

// kind is a sort of dataset: what can be read from anywhere, what has some entry
// points, and what can be read from its beginning only.
type kind struct {
	name, ext string // ext with the compression's
	streamExt string
	flags     []string
	epilogue  []byte
	shards    int
	make      func(r *rand.Rand, number int) shard
	compress  func(s shard) []byte
}

var (
	tars     = kind{"tar", ".tar", ".tar", nil, make([]byte, 1024), 10, tarShard, plain}
	tarsZstd = kind{"tar.zst", ".tar.zst", ".tar", nil, make([]byte, 1024), 10, tarShard, zstdFrames}
	linesGz  = kind{"jsonl.gz", ".jsonl.gz", ".jsonl", nil, nil, 10, lineShard, gzipMember}
	fixed    = kind{"fixed", ".bin", ".bin", []string{"--format", "fixed", "--record-bytes", fmt.Sprint(fixedBytes)}, nil, 10, fixedShard, plain}
)

// makeDataset writes shards of a kind, the same for the same seed.
func makeDataset(t *testing.T, k kind, seed uint64) *dataset {
	t.Helper()
	d := &dataset{name: k.name, dir: t.TempDir(), ext: k.streamExt, flags: k.flags, records: map[string][]byte{}, epilogue: k.epilogue}
	r := rand.New(rand.NewPCG(seed, uint64(len(k.name))))
	for i := range k.shards {
		name := fmt.Sprintf("s%02d%s", i, k.ext)
		s := k.make(r, i)
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, name), k.compress(s), 0o644))
		for ordinal, record := range s.records {
			d.records[recordID(name, ordinal)] = record
		}
	}
	return d
}

// recordID is that of pipeline/order/SELECTION.md.
func recordID(shard string, ordinal int) string {
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + shard))
	return string(binary.BigEndian.AppendUint64(sum[:8:8], uint64(ordinal)))
}

// letters are as random as text is: about half of them is left by compression.
func letters(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnop"[r.IntN(16)]
	}
	return b
}

// tarShard has samples of two members. Keys are those of one sample only, so
// that no neighbours have to be renamed.
func tarShard(r *rand.Rand, number int) shard {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	var ends []int
	for i := range 60 + r.IntN(30) {
		for _, m := range []struct {
			ending string
			data   []byte
		}{{"txt", letters(r, r.IntN(20_000))}, {"cls", letters(r, 3)}} {
			must(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%02d-%04d.%s", number, i, m.ending), Mode: 0o644, Size: int64(len(m.data)), Format: tar.FormatUSTAR}))
			_, err := w.Write(m.data)
			must(err)
		}
		must(w.Flush()) // the padding
		ends = append(ends, b.Len())
	}
	must(w.Close())
	return cut(b.Bytes(), ends)
}

func lineShard(r *rand.Rand, number int) shard {
	var b []byte
	var ends []int
	for i := range 300 + r.IntN(100) {
		b = fmt.Appendf(b, `{"shard": %d, "line": %d, "text": "%s"}`+"\n", number, i, letters(r, r.IntN(4000)))
		ends = append(ends, len(b))
	}
	return cut(b, ends)
}

// fixedBytes is the size of fixed records: long enough to go out from the page
// cache.
const fixedBytes = 9000

func fixedShard(r *rand.Rand, _ int) shard {
	var b []byte
	var ends []int
	for range 80 + r.IntN(40) {
		b = append(b, letters(r, fixedBytes)...)
		ends = append(ends, len(b))
	}
	return cut(b, ends)
}

func cut(b []byte, ends []int) shard {
	s := shard{bytes: b}
	begin := 0
	for _, end := range ends {
		s.records = append(s.records, b[begin:end:end])
		begin = end
	}
	return s
}

func plain(s shard) []byte { return s.bytes }

// gzipMember makes one member of a shard, as gzip(1) does.
func gzipMember(s shard) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(s.bytes)
	must(err)
	must(w.Close())
	return b.Bytes()
}

// zstdFrames begins a frame at every eighth record.
func zstdFrames(s shard) []byte {
	w, err := zstd.NewWriter(nil)
	must(err)
	var out, frame []byte
	rest := s.bytes
	for i, record := range s.records {
		frame, rest = append(frame, record...), rest[len(record):]
		if i%8 == 7 {
			out, frame = w.EncodeAll(frame, out), frame[:0]
		}
	}
	return w.EncodeAll(append(frame, rest...), out)
}

// must is for what can't fail: writers in memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
