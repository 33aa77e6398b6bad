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

// dataset is a directory of shards, with the model's knowledge of it: the records when the shards
// were made.
type dataset struct {
	name, dir string
	ext       string   // extension of its streams
	flags     []string // the format's flags, both for the program and the reference
	records   map[string][]byte
	epilogue  []byte
}

// shard is one file before compression, and its records.
type shard struct {
	bytes   []byte
	records [][]byte
}

// kind is a sort of dataset: readable from anywhere, with some entry points, or only from the
// beginning.
type kind struct {
	name, ext string // ext includes the compression's
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

// makeDataset writes shards of a kind, always the same for a seed.
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

// recordID returns an ID as defined by pipeline/order/SELECTION.md.
func recordID(shard string, ordinal int) string {
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + shard))
	return string(binary.BigEndian.AppendUint64(sum[:8:8], uint64(ordinal)))
}

// letters returns letters as random as text: compression halves them.
func letters(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnop"[r.IntN(16)]
	}
	return b
}

// tarShard has samples of two members each. Keys occur in one sample only, so that neighbours need
// no renaming.
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

// fixedBytes is the size of fixed records: long enough to be sent from the page cache.
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

// zstdFrames begins a new frame every eight records.
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

// must is for calls that can't fail, such as writes to memory.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
