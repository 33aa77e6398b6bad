package tfrecord_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
)

// slowCRC computes the masked crc32c, bit by bit.
func slowCRC(p []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range p {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ crc&1*0x82f63b78
		}
	}
	crc = ^crc
	return (crc>>15 | crc<<17) + 0xa282ead8
}

func frame(data []byte) []byte {
	f := head(uint64(len(data)))
	f = append(f, data...)
	return binary.LittleEndian.AppendUint32(f, slowCRC(data))
}

func head(n uint64) []byte {
	h := binary.LittleEndian.AppendUint64(nil, n)
	return binary.LittleEndian.AppendUint32(h, slowCRC(h))
}

// naive reads a whole file.
func naive(shard []byte) formattest.Outcome {
	var o formattest.Outcome
	at := 0
	for at < len(shard) {
		rest := shard[at:]
		if len(rest) < 12 || slowCRC(rest[:8]) != binary.LittleEndian.Uint32(rest[8:]) {
			o.Damaged = true
			return o
		}
		n := binary.LittleEndian.Uint64(rest)
		if n > uint64(len(rest)) || uint64(len(rest)) < 16+n {
			o.Damaged = true
			return o
		}
		o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(16 + n)})
		at += int(16 + n)
	}
	return o
}

func draw(t *rapid.T) []byte {
	var shard []byte
	for range rapid.IntRange(0, 8).Draw(t, "records") {
		shard = append(shard, frame(bytes.Repeat([]byte("x"), rapid.IntRange(0, 300).Draw(t, "n")))...)
	}
	return shard
}

func TestSuite(t *testing.T) {
	formattest.Suite{
		Format: tfrecord.Format{},
		Shards: []formattest.Shard{
			{Name: "one record", Bytes: frame([]byte("hello"))},
			{Name: "an empty record", Bytes: frame(nil)},
			{Name: "several", Bytes: bytes.Join([][]byte{frame([]byte("a")), frame(nil), frame(bytes.Repeat([]byte("b"), 700)), frame([]byte("c"))}, nil)},
		},
		Naive: naive,
		Draw:  draw,
	}.Run(t)
}

func index(shard []byte) (format.Summary, int, error) {
	n := 0
	s, err := format.Scan(context.Background(), tfrecord.Format{}, nil, bytes.NewReader(shard), int64(len(shard)),
		func(format.Extent) error { n++; return nil }, func() {})
	return s, n, err
}

func TestDamage(t *testing.T) {
	good := frame([]byte("good"))
	for _, c := range []struct {
		name, reason string
		tail         []byte
	}{
		{"a length that ends early", "ends inside a record's length, after 5 of its 12 bytes", head(3)[:5]},
		{"a length whose checksum does not hold", "the length's crc32c does not match", append(binary.LittleEndian.AppendUint64(nil, 3), "abcdefghi"...)},
		{"data that end early", "the file ends inside the record, which has 3 bytes of data", frame([]byte("abc"))[:16]},
		{"a length of many GiB", "the file ends inside the record", append(head(1<<40), "abc"...)},
		{"a length near 2^63", "length, 9223372036854775807 bytes, is too large", append(head(math.MaxInt64), "abc"...)},
		{"a length near 2^63 that is an int64 with the frame", "the file ends inside the record", append(head(math.MaxInt64-16), "abc"...)},
		{"a length near 2^64", "length, 18446744073709551615 bytes, is too large", append(head(math.MaxUint64), "abc"...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, n, err := index(append(bytes.Clone(good), c.tail...))
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(1), s.Damage.Record)
			require.Equal(t, int64(len(good)), s.Damage.OffsetBytes)
			require.Contains(t, s.Damage.Reason, c.reason)
		})
	}
}

func TestHugeLengthDoesNotAllocate(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := index(append(head(1<<38), make([]byte, 100)...))
	runtime.ReadMemStats(&after)
	require.NoError(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
}

func TestVerify(t *testing.T) {
	var f tfrecord.Format
	record := frame([]byte("some data"))
	require.NoError(t, f.Verify(record))
	for i := range record {
		damaged := bytes.Clone(record)
		damaged[i] ^= 0x10
		require.Error(t, f.Verify(damaged), "byte %d", i)
		require.Error(t, f.Verify(record[:i]), "cut off at %d", i)
	}
	require.ErrorContains(t, f.Verify(append(record[:len(record)-1:len(record)-1], 'x')), "the data's crc32c does not match")
}

// However a frame is split into pieces, its check returns the same as Verify for the whole frame,
// even after it has checked another frame.
func TestFrameIsCheckedInPieces(t *testing.T) {
	var f tfrecord.Format
	whole := frame([]byte("some data"))
	c := f.NewCheck()
	for flipped := -1; flipped < len(whole); flipped++ {
		for end := 0; end <= len(whole); end++ {
			record := bytes.Clone(whole[:end])
			if flipped >= 0 && flipped < end {
				record[flipped] ^= 0x10
			}
			want := f.Verify(record)
			require.Equal(t, end == len(whole) && flipped < 0, want == nil)
			for size := 1; size <= len(whole); size++ {
				c.Begin(int64(len(record)))
				for piece := range slices.Chunk(record, size) {
					c.Add(piece)
				}
				require.Equal(t, want, c.End(), "byte %d, cut off at %d, in pieces of %d", flipped, end, size)
			}
		}
	}
}

func TestSniff(t *testing.T) {
	var f tfrecord.Format
	require.True(t, f.Sniff(frame([]byte("abc"))))
	require.True(t, f.Sniff(head(1<<30)))
	require.False(t, f.Sniff(head(3)[:11]))
	require.False(t, f.Sniff(make([]byte, 64)))
	require.False(t, f.Sniff(nil))
}

func FuzzIndex(f *testing.F) {
	f.Add(frame([]byte("hello")))
	f.Add(append(frame(nil), head(math.MaxUint64)...))
	f.Fuzz(func(t *testing.T, shard []byte) {
		if len(shard) == 0 {
			return
		}
		want := naive(shard)
		s, n, err := index(shard)
		require.NoError(t, err)
		require.Equal(t, len(want.Records), n)
		require.Equal(t, want.Damaged, s.Damage != nil)
	})
}
