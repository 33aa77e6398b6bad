// Package synthetic makes shards of seeded data for measurements and demos, in every format and
// compression that lsiofs reads.
//
//	tar       WebDataset samples: NNNNNNNNN.jpg of random bytes, NNNNNNNNN.cls
//	jsonl     {"id":N,"text":"…"}: words by a Zipf law, which compress about as well as text
//	tfrecord  frames of random bytes, with their checksums
//	fixed     records that begin with their number; half of their bits are random
//	npy       arrays of bytes whose rows are the records of fixed
//	lc0       frames of version 6, in games of 180: a .gz file each, or in tars
//	files     a directory of NNNNNNNNN.jpg of random bytes
//
// The bytes of a record are a pure function of the shape and the record's number. So they don't
// depend on how records are cut into shards, or on which core makes them. The bytes of a compressed
// shard also depend on the version of the compressor.
package synthetic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// Formats are the valid values of Shape.Format.
var Formats = []string{"tar", "jsonl", "fixed", "tfrecord", "npy", "lc0", "files"}

// Codecs are the non-empty values of Shape.Codec. They are also the extensions of
// compressed shards.
var Codecs = []string{"gz", "zst", "lz4"}

// Shape describes the data to make.
type Shape struct {
	Format string // one of Formats
	Codec  string // one of Codecs, "" for none; for lc0 "gz", or "tar" for tars of games
	// RecordBytes is the size of a record in its shard, including framing; for files it is the size
	// of the file. It is exact for fixed, npy and lc0 (FrameBytes). For the others it is the
	// average: sizes are distributed uniformly between half of it and one and a half times.
	RecordBytes int64
	Seed        uint64
}

// The smallest record of each format: framing, and some data.
var leastBytes = map[string]int64{"tar": 4096, "jsonl": 64, "fixed": 8, "tfrecord": 64, "npy": 8, "lc0": FrameBytes, "files": 1}

// maxRecordBytes bounds a record, which is made in memory.
const maxRecordBytes = 1 << 30

// Validate returns everything that is wrong with a shape.
func (s Shape) Validate() error {
	var problems []error
	least, known := leastBytes[s.Format]
	if !known {
		problems = append(problems, fmt.Errorf("format %q: what can be made is %s", s.Format, strings.Join(Formats, ", ")))
	}
	codecs := append([]string{""}, Codecs...)
	if s.Format == "lc0" {
		codecs = []string{"gz", "tar"}
		if s.RecordBytes > FrameBytes {
			problems = append(problems, fmt.Errorf("bytes of a record (%d) of lc0 are %d", s.RecordBytes, FrameBytes))
		}
	}
	if !slices.Contains(codecs, s.Codec) {
		problems = append(problems, fmt.Errorf("compression %q of %s: what can be made is %s", s.Codec, s.Format, strings.TrimPrefix(strings.Join(codecs, ", "), ", ")))
	}
	if s.Format == "files" && s.Codec != "" {
		problems = append(problems, fmt.Errorf("compression %q: directories of files have none", s.Codec))
	}
	if known && (s.RecordBytes < least || s.RecordBytes > maxRecordBytes) {
		problems = append(problems, fmt.Errorf("bytes of a record (%d) of %s must be between %d and %d", s.RecordBytes, s.Format, least, int64(maxRecordBytes)))
	}
	return errors.Join(problems...)
}

// Extension returns the extension of the shards' names, with the dot; "" for directories.
func (s Shape) Extension() string {
	if s.Format == "files" {
		return ""
	}
	e := "." + s.Format
	switch s.Format {
	case "fixed":
		e = ".bin"
	case "lc0":
		e = ""
	}
	if s.Codec != "" {
		e += "." + s.Codec
	}
	return e
}

// WriteShard writes the shard with records first … first+count-1. It may be called concurrently. It
// calls made, unless that is nil, with the number of decoded bytes as they are made. The shape must
// be valid.
func (s Shape) WriteShard(out io.Writer, first, count uint64, made func(bytes int64)) error {
	file := bufio.NewWriterSize(out, 1<<20)
	if s.Format == "lc0" {
		return errors.Join(s.writeGames(file, first, count, made), file.Flush())
	}
	z, err := s.compressor(file)
	if err != nil {
		return err
	}
	head, err := s.head(count)
	if err != nil {
		return err
	}
	if _, err := z.Write(head); err != nil {
		return err
	}
	m := newMaker(s)
	for i := range count {
		record := m.record(first + i)
		if _, err := z.Write(record); err != nil {
			return err
		}
		if made != nil {
			made(int64(len(record)))
		}
	}
	if s.Format == "tar" {
		if _, err := z.Write(make([]byte, 2*tarBlock)); err != nil {
			return err
		}
	}
	return errors.Join(z.Close(), file.Flush())
}

// head returns what precedes the records of a shard.
func (s Shape) head(count uint64) ([]byte, error) {
	if s.Format != "npy" {
		return nil, nil
	}
	rows, err := npy.Format{}.OfKind(fmt.Sprintf("'|u1' (%d,)", s.RecordBytes))
	if err != nil {
		return nil, err
	}
	return rows.(format.Framer).Prologue(count), nil
}

// WriteFiles writes the files with numbers first … first+count-1 to an existing directory, and
// returns their total size. It may be called concurrently. It calls made with the size of each
// file, and stops if made returns an error. The shape must be valid and of format files.
func (s Shape) WriteFiles(dir string, first, count uint64, made func(bytes int64) error) (size int64, err error) {
	m := newMaker(s)
	for i := range count {
		file := m.record(first + i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%09d.jpg", first+i)), file, 0o666); err != nil {
			return size, err
		}
		size += int64(len(file))
		if err := made(int64(len(file))); err != nil {
			return size, err
		}
	}
	return size, nil
}

// maker makes records, one after another, in memory that it reuses.
type maker struct {
	shape  Shape
	pcg    *rand.PCG
	words  *vocabulary // of jsonl
	buffer []byte
}

func newMaker(s Shape) *maker {
	m := &maker{shape: s, pcg: rand.NewPCG(0, 0)}
	if s.Format == "jsonl" {
		m.words = newVocabulary()
	}
	return m
}

// record returns record n; it is valid until the next call.
func (m *maker) record(n uint64) []byte {
	m.pcg.Seed(m.shape.Seed, n)
	m.buffer = m.buffer[:0]
	switch m.shape.Format {
	case "tar":
		m.sample(n)
	case "jsonl":
		m.line(n)
	case "tfrecord":
		m.frame()
	case "lc0":
		m.game(n)
	case "files":
		m.random(m.size(), ^uint64(0))
	default:
		m.fixed(n)
	}
	return m.buffer
}

// size draws the size of a record.
func (m *maker) size() int {
	mean := m.shape.RecordBytes
	return int(mean/2 + int64(m.pcg.Uint64()%uint64(mean+1)))
}

// random appends n random bytes, of which mask keeps some bits.
func (m *maker) random(n int, mask uint64) {
	m.buffer = slices.Grow(m.buffer, n+8)
	end := len(m.buffer) + n
	for len(m.buffer) < end {
		v := m.pcg.Uint64() & mask
		m.buffer = append(m.buffer, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	m.buffer = m.buffer[:end]
}

// compressor compresses what is written to it into one member or frame, as gzip, zstd and lz4 do by
// default.
func (s Shape) compressor(out io.Writer) (io.WriteCloser, error) {
	switch s.Codec {
	case "gz":
		return gzip.NewWriterLevel(out, gzip.DefaultCompression)
	case "zst":
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	case "lz4":
		return lz4.NewWriter(out), nil
	}
	return plain{out}, nil
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
