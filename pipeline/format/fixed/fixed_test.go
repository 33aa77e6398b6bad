package fixed_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/fixed"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newFormat(t require.TestingT, n, s, h int64, r spec.Remainder) fixed.Format {
	f, err := fixed.New(spec.Format{Name: "fixed", RecordBytes: n, StrideBytes: s, HeaderBytes: h, Remainder: r})
	require.NoError(t, err)
	return f
}

// naive counts the records of a file of size bytes.
func naive(size, n, s, h int64, r spec.Remainder) formattest.Outcome {
	var o formattest.Outcome
	if s == 0 {
		s = n
	}
	end := h
	for at := h; at+n <= size; at += s {
		o.Records = append(o.Records, formattest.Record{OffsetBytes: at, SizeBytes: n})
		end = at + n
	}
	o.Damaged = s == n && r != spec.RemainderDrop && end != size
	return o
}

func TestSuite(t *testing.T) {
	for _, c := range []struct {
		name    string
		n, s, h int64
		r       spec.Remainder
		size    int
	}{
		{"records side by side", 10, 0, 0, spec.RemainderCorrupt, 400},
		{"records side by side behind a header", 7, 7, 30, spec.RemainderCorrupt, 30 + 70},
		{"a remainder that is dropped", 10, 10, 3, spec.RemainderDrop, 88},
		{"records that overlap", 10, 4, 16, spec.RemainderCorrupt, 99},
		{"records that lie apart", 4, 10, 1, spec.RemainderCorrupt, 77},
		{"records of one byte", 1, 1, 0, spec.RemainderCorrupt, 50},
		{"a header alone", 10, 10, 20, spec.RemainderCorrupt, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			formattest.Suite{
				Format: newFormat(t, c.n, c.s, c.h, c.r),
				Shards: []formattest.Shard{{Name: "shard", Bytes: bytes.Repeat([]byte("0123456789abc"), 100)[:c.size]}},
				Naive:  func(shard []byte) formattest.Outcome { return naive(int64(len(shard)), c.n, c.s, c.h, c.r) },
				Draw:   func(t *rapid.T) []byte { return make([]byte, rapid.IntRange(0, 200).Draw(t, "size")) },
			}.Run(t)
		})
	}
}

func TestAnyNumbersMatchArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 40).Draw(t, "record")
		s := rapid.Int64Range(0, 40).Draw(t, "stride")
		h := rapid.Int64Range(0, 40).Draw(t, "header")
		r := rapid.SampledFrom([]spec.Remainder{spec.RemainderCorrupt, spec.RemainderDrop}).Draw(t, "remainder")
		size := rapid.IntRange(1, 300).Draw(t, "size")
		want := naive(int64(size), n, s, h, r)
		records, summary := index(t, newFormat(t, n, s, h, r), size)
		require.Equal(t, want.Records, records)
		require.Equal(t, want.Damaged, summary.Damage != nil)
	})
}

func index(t require.TestingT, f format.Format, size int) (records []formattest.Record, s format.Summary) {
	s, err := format.Scan(context.Background(), f, nil, bytes.NewReader(make([]byte, size)), int64(size), func(e format.Extent) error {
		records = append(records, formattest.Record{OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes})
		return nil
	}, func() {})
	require.NoError(t, err)
	return records, s
}

func TestRemainderIsNamed(t *testing.T) {
	records, s := index(t, newFormat(t, 10, 0, 5, spec.RemainderCorrupt), 38)
	require.Len(t, records, 3)
	require.EqualError(t, s.Damage, "record 3 at offset 35: the last 3 bytes are not a whole record of 10 bytes; --remainder drop leaves them out")
	_, s = index(t, newFormat(t, 10, 0, 50, spec.RemainderCorrupt), 38)
	require.EqualError(t, s.Damage, "record 0 at offset 0: the last 38 bytes are not a whole header of 50 bytes; --remainder drop leaves them out")
}

func TestLargeNumbersDoNotOverflow(t *testing.T) {
	const most = math.MaxInt64
	records, _ := index(t, newFormat(t, most, 0, 0, spec.RemainderDrop), 100)
	require.Empty(t, records)
	records, _ = index(t, newFormat(t, 1, 1, most, spec.RemainderDrop), 100)
	require.Empty(t, records)
	records, _ = index(t, newFormat(t, 1, most, 3, spec.RemainderCorrupt), 100)
	require.Equal(t, []formattest.Record{{OffsetBytes: 3, SizeBytes: 1}}, records)
}

func TestIndexingReadsNoBytes(t *testing.T) {
	f := newFormat(t, 1000, 0, 0, spec.RemainderCorrupt)
	n := 0
	_, err := format.Scan(context.Background(), f, nil, unreadable{}, 1_000_000, func(format.Extent) error { n++; return nil }, func() {})
	require.NoError(t, err)
	require.Equal(t, 1000, n)
}

type unreadable struct{}

func (unreadable) ReadAt([]byte, int64) (int, error) { panic("read") }

func TestNumbersAreValidated(t *testing.T) {
	_, err := fixed.New(spec.Format{Name: "fixed"})
	require.ErrorContains(t, err, "--record-bytes (0) must be at least 1")
	_, err = fixed.New(spec.Format{Name: "fixed", RecordBytes: 1, StrideBytes: -1, HeaderBytes: -1})
	require.ErrorContains(t, err, "--stride-bytes (-1)")
	require.ErrorContains(t, err, "--header-bytes (-1)")
}

func TestStreamExtension(t *testing.T) {
	f := newFormat(t, 1, 0, 0, "")
	require.Equal(t, ".u16", f.StreamExtension("a/b.c/tokens.u16"))
	require.Equal(t, ".bin", f.StreamExtension("a/b.c/tokens"))
	require.Equal(t, ".bin", f.StreamExtension("tokens."))
}

func FuzzIndex(f *testing.F) {
	f.Add(int64(10), int64(0), int64(0), uint16(100), true)
	f.Add(int64(1), int64(math.MaxInt64), int64(math.MaxInt64), uint16(9), false)
	f.Fuzz(func(t *testing.T, n, s, h int64, size uint16, drop bool) {
		r := spec.RemainderCorrupt
		if drop {
			r = spec.RemainderDrop
		}
		g, err := fixed.New(spec.Format{Name: "fixed", RecordBytes: n, StrideBytes: s, HeaderBytes: h, Remainder: r})
		if err != nil || size == 0 {
			return
		}
		records, _ := index(t, g, int(size))
		for _, r := range records {
			require.True(t, r.OffsetBytes >= 0 && r.SizeBytes == n && r.OffsetBytes <= int64(size)-n)
		}
	})
}
