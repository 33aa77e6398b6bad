package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	kgzip "github.com/klauspost/compress/gzip"
	kzstd "github.com/klauspost/compress/zstd"
	plz4 "github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

func codecs() []format.Codec { return []format.Codec{gzip.Codec{}, zstd.Codec{}, lz4.Codec{}} }

// A writer has megabytes of tables. Without reuse, datasets of some thousand members would take
// most of their time to allocate them.
var (
	gzipWriters = sync.Pool{New: func() any { return kgzip.NewWriter(nil) }}
	zstdWriters = sync.Pool{New: func() any {
		w, err := kzstd.NewWriter(nil, kzstd.WithEncoderConcurrency(1), kzstd.WithEncoderCRC(true))
		must(0, err)
		return w
	}}
	lz4Writers = sync.Pool{New: func() any {
		w := plz4.NewWriter(nil)
		must(0, w.Apply(plz4.BlockSizeOption(plz4.Block64Kb), plz4.BlockChecksumOption(true), plz4.ChecksumOption(true)))
		return w
	}}
)

// compressWith compresses p with a writer of a pool.
func compressWith[W interface {
	io.WriteCloser
	Reset(io.Writer)
}](pool *sync.Pool, p []byte) []byte {
	var b bytes.Buffer
	w := pool.Get().(W)
	w.Reset(&b)
	must(w.Write(p))
	must(0, w.Close())
	w.Reset(nil)
	pool.Put(w)
	return b.Bytes()
}

// Gzip compresses p into one gzip member.
func Gzip(p []byte) []byte { return compressWith[*kgzip.Writer](&gzipWriters, p) }

// Zstd compresses p into one frame with a checksum.
func Zstd(p []byte) []byte {
	b := compressWith[*kzstd.Encoder](&zstdWriters, p)
	if len(b) == 0 { // the encoder does not write a frame for empty input
		return []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x00, 0x01, 0x00, 0x00}
	}
	return b
}

// LZ4 compresses p into one frame of independent blocks of up to 64 KiB, with checksums
// of the blocks and of the whole.
func LZ4(p []byte) []byte { return compressWith[*plz4.Writer](&lz4Writers, p) }

// Skippable returns a skippable frame of n bytes.
func Skippable(n int) []byte {
	return append([]byte{0x5e, 0x2a, 0x4d, 0x18, byte(n), byte(n >> 8), 0, 0}, make([]byte, n)...)
}

func must(_ int, err error) {
	if err != nil {
		panic(err)
	}
}

// variant is a shard, compressed in some way.
type variant struct {
	name    string
	codec   format.Codec
	raw     []byte
	members []format.Member
	between []byte // what may be between members: a skippable frame, or nothing
}

// variants compresses a shard as one member, and as several with empty ones between them.
func variants(shard []byte) []variant {
	var all []variant
	n := len(shard)
	for _, parts := range [][]int{{n}, {0, n / 3, n / 3, n / 2, n}} {
		g := variant{name: fmt.Sprintf("gzip of %d members", len(parts)), codec: gzip.Codec{}}
		z := variant{name: fmt.Sprintf("zstd of %d frames", len(parts)), codec: zstd.Codec{}, between: Skippable(300)}
		l := variant{name: fmt.Sprintf("lz4 of %d frames", len(parts)), codec: lz4.Codec{}, between: Skippable(5)}
		start := 0
		for _, end := range parts {
			g.add(shard[start:end], start, Gzip)
			z.add(shard[start:end], start, Zstd)
			l.add(shard[start:end], start, LZ4)
			start = end
		}
		g.raw = append(g.raw, 0, 0, 0)
		z.raw = append(z.raw, z.between...)
		l.raw = append(l.raw, l.between...)
		all = append(all, g, z, l)
	}
	return all
}

func (v *variant) add(part []byte, at int, compress func([]byte) []byte) {
	v.raw = append(v.raw, v.between...)
	v.members = append(v.members, format.Member{DecodedBytes: int64(at), RawBytes: int64(len(v.raw))})
	v.raw = append(v.raw, compress(part)...)
}

func (s Suite) compressed(t *testing.T, shard []byte, intact []Record) {
	for _, v := range variants(shard) {
		got := s.scanCompressed(t, v, v.raw)
		require.NoError(t, got.err, v.name)
		require.Nil(t, got.summary.Damage, v.name)
		require.Equal(t, intact, got.records, v.name)
		require.Equal(t, int64(len(shard)), got.summary.DecodedBytes, v.name)
		require.Equal(t, v.members, got.summary.Members, v.name)
		requireEntries(t, v, shard)
	}
}

// scanCompressed scans the raw bytes of a variant, and again with members decoded ahead, which must
// not make a difference.
func (s Suite) scanCompressed(t *testing.T, v variant, raw []byte) scanned {
	got := scan(context.Background(), s.Format, v.codec, raw)
	codec, room := ahead(v.codec)
	require.Equal(t, got, scan(context.Background(), s.Format, codec, raw), v.name)
	room.requireWhole(t)
	return got
}

// requireEntries reads a shard from each of its members to the end.
func requireEntries(t *testing.T, v variant, shard []byte) {
	for _, m := range v.members {
		d, err := format.NewDecoded(v.codec, bytes.NewReader(v.raw), int64(len(v.raw)), format.Entry{RawBytes: m.RawBytes, DecodedBytes: m.DecodedBytes})
		require.NoError(t, err)
		require.Equal(t, m.DecodedBytes, d.OffsetBytes())
		rest, err := io.ReadAll(d)
		require.NoError(t, err)
		require.True(t, bytes.Equal(shard[m.DecodedBytes:], rest), "%s from byte %d", v.name, m.RawBytes)
		require.Equal(t, int64(len(shard)), d.OffsetBytes())
		require.Positive(t, d.MemoryBytes())
		d.Close()
	}
}

// compressedCut truncates compressed shards at every byte: everything that is kept comes from whole
// members, and all their records are kept.
func (s Suite) compressedCut(t *testing.T, shard []byte, intact []Record) {
	for _, v := range variants(shard) {
		step := Stride() * max(1, len(v.raw)/150)
		for n := 1; n < len(v.raw); n += step {
			got := s.scanCompressed(t, v, v.raw[:n])
			if errors.As(got.err, new(*format.RefusedError)) { // between members: the rest is not a shard of the format
				i := slices.IndexFunc(v.members, func(m format.Member) bool {
					return m.RawBytes == int64(n) || m.RawBytes-int64(len(v.between)) == int64(n)
				})
				require.True(t, i >= 0 && s.Naive(shard[:v.members[i].DecodedBytes]).Refused, "%s cut off at %d: %v", v.name, n, got.err)
				continue
			}
			require.NoError(t, got.err, "%s cut off at %d", v.name, n)
			d := got.summary.Damage
			if d == nil { // between members: a shorter shard
				continue
			}
			require.Equal(t, d.RawOffset >= 0, got.restarts > 0)
			if d.RawOffset < 0 {
				continue // the format's damage, in a shorter shard
			}
			requireDamage(t, got, d.RawOffset)
			s.requireWholeMembers(t, got, intact)
		}
	}
}

// compressedFlipped flips bits of compressed shards: a member's bytes reach the format before its
// checksum is verified, and no record from them may be kept.
func (s Suite) compressedFlipped(t *testing.T, shard []byte, intact []Record) {
	for _, v := range variants(shard) {
		step := Stride() * max(1, len(v.raw)/150)
		for i := 0; i < len(v.raw); i += step {
			damaged := bytes.Clone(v.raw)
			damaged[i] ^= 1 << (i * 5 % 8)
			got := s.scanCompressed(t, v, damaged)
			require.NoError(t, got.err, "%s flipped at %d", v.name, i)
			d := got.summary.Damage
			if d == nil { // a bit without a meaning, or an empty member's
				require.Equal(t, intact, got.records)
				continue
			}
			requireDamage(t, got, d.RawOffset)
			if d.RawOffset >= 0 {
				s.requireWholeMembers(t, got, intact)
			}
		}
	}
}

// requireWholeMembers checks the records of a shard in which the codec found damage.
func (s Suite) requireWholeMembers(t *testing.T, got scanned, intact []Record) {
	sound := got.summary.Damage.OffsetBytes
	require.Equal(t, sound, got.summary.DecodedBytes)
	require.LessOrEqual(t, len(got.records), len(intact))
	for i, r := range got.records {
		require.Equal(t, intact[i], r)
	}
	if n := len(got.records); n > 0 {
		require.LessOrEqual(t, got.records[n-1].OffsetBytes+got.records[n-1].SizeBytes, sound)
	}
	// A record is known to be whole at the latest after the next one.
	if n := len(got.records) + 1; n < len(intact) && !s.Whole {
		require.Greater(t, intact[n].OffsetBytes+intact[n].SizeBytes, sound, "record %d was not kept", n-1)
	}
}
