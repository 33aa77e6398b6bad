// Package formattest is the test suite that every format passes, with every codec: Suite.Run. A
// format provides intact shards, a way to draw random ones, and a deliberately naive parser of
// whole files for comparison.
//
//	random or damaged shard ──┬──► the format's index pass ──┬──► equal records, or both refuse
//	                          └──► naive parser ─────────────┘
package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Record is an extent that stays valid after emit returns.
type Record struct {
	OffsetBytes, SizeBytes int64
	KeyHash                uint64
	Growth                 []int64
}

// Outcome is the result of an index pass.
type Outcome struct {
	Records []Record
	Kind    string // of a Uniform format's records, if there are any
	Damaged bool
	Refused bool // if true, Records is meaningless
}

// Shard is a decoded shard to test with. The suite truncates it at, and flips, every byte, so it
// should be small.
type Shard struct {
	Name  string
	Bytes []byte
}

// Suite is what a format provides to the test suite.
type Suite struct {
	Format format.Format
	// Shards are intact shards.
	Shards []Shard
	// Naive is the index pass of a whole file, which may have any bytes. Of an empty file it only
	// shows whether it is refused.
	Naive func(shard []byte) Outcome
	// Draw draws a random shard, valid or not.
	Draw func(t *rapid.T) []byte
	// EndsAnywhere means that a truncated shard can be valid, with a shorter last record.
	EndsAnywhere bool
	// Whole means that a damaged shard gives no records at all.
	Whole bool
}

// Run runs the whole suite.
func (s Suite) Run(t *testing.T) {
	for _, shard := range s.Shards {
		t.Run(shard.Name, func(t *testing.T) {
			want := s.Naive(shard.Bytes)
			require.False(t, want.Damaged || want.Refused, "the shard is not sound")
			t.Run("a sound shard gives its records", func(t *testing.T) { s.requireNaive(t, shard.Bytes) })
			t.Run("cut off anywhere it gives its whole records", func(t *testing.T) { s.cutAnywhere(t, shard.Bytes, want.Records) })
			t.Run("a flipped bit anywhere does no harm", func(t *testing.T) { s.flipAnywhere(t, shard.Bytes) })
			t.Run("sizes of windows never show", func(t *testing.T) { s.windows(t, shard.Bytes) })
			t.Run("errors of reading are no damage", func(t *testing.T) { s.faults(t, shard.Bytes) })
			t.Run("errors of emit come back", func(t *testing.T) { s.emitErrors(t, shard.Bytes, want.Records) })
			t.Run("compressed it gives the same records", func(t *testing.T) { s.compressed(t, shard.Bytes, want.Records) })
			t.Run("compressed and flipped it gives whole records", func(t *testing.T) { s.compressedFlipped(t, shard.Bytes, want.Records) })
			t.Run("compressed and cut off it gives whole records", func(t *testing.T) { s.compressedCut(t, shard.Bytes, want.Records) })
		})
	}
	t.Run("an empty file is damaged, unless the format takes it", s.empty)
	t.Run("a cancelled context ends it", s.cancelled)
	t.Run("random shards agree with the naive parser", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { s.requireNaive(t, s.Draw(t)) })
	})
	t.Run("random damage agrees with the naive parser", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { s.requireNaive(t, s.drawDamaged(t)) })
	})
}

// Stride is the distance between the places at which a test truncates, flips or fails: 1 at night.
// Otherwise it tests every third place, which includes all remainders modulo 8 and 512.
func Stride() int {
	if serve.Runs(serve.Night) && !testing.Short() {
		return 1
	}
	return 3
}

// scanned is the result of format.Scan.
type scanned struct {
	records  []Record
	summary  format.Summary
	err      error
	restarts int
}

func scan(ctx context.Context, f format.Format, codec format.Codec, raw []byte) scanned {
	var r scanned
	r.summary, r.err = format.Scan(ctx, f, codec, bytes.NewReader(raw), int64(len(raw)), collect(&r.records), func() {
		r.records = nil
		r.restarts++
	})
	return r
}

func collect(records *[]Record) func(format.Extent) error {
	return func(e format.Extent) error {
		*records = append(*records, Record{e.OffsetBytes, e.SizeBytes, e.KeyHash, append([]int64(nil), e.Growth...)})
		return nil
	}
}

// requireNaive scans a shard and compares with the naive parser.
func (s Suite) requireNaive(t require.TestingT, shard []byte) scanned {
	got := scan(context.Background(), s.Format, nil, shard)
	if len(shard) == 0 {
		return got
	}
	want := s.Naive(shard)
	if want.Refused {
		var refused *format.RefusedError
		require.ErrorAs(t, got.err, &refused)
		return got
	}
	require.NoError(t, got.err)
	require.Equal(t, want.Records, got.records)
	if len(want.Records) > 0 {
		require.Equal(t, want.Kind, got.summary.Kind)
	}
	require.Equal(t, want.Damaged, got.summary.Damage != nil, "damage %v", got.summary.Damage)
	require.Equal(t, int64(len(shard)), got.summary.DecodedBytes)
	require.Zero(t, got.restarts)
	requireDamage(t, got, -1)
	return got
}

// requireDamage checks that damage is attributed to the first missing record, at a place after the
// existing ones.
func requireDamage(t require.TestingT, got scanned, rawOffset int64) {
	d := got.summary.Damage
	if d == nil {
		return
	}
	require.Equal(t, rawOffset, d.RawOffset)
	require.NotEmpty(t, d.Reason)
	if d.Record >= 0 {
		require.Equal(t, int64(len(got.records)), d.Record)
	}
	if n := len(got.records); n > 0 && rawOffset < 0 {
		last := got.records[n-1]
		require.LessOrEqual(t, last.OffsetBytes, d.OffsetBytes)
	}
}

func (s Suite) cutAnywhere(t *testing.T, shard []byte, intact []Record) {
	for n := 1; n < len(shard); n += Stride() {
		got := s.requireNaive(t, shard[:n])
		whole := got.records
		if s.EndsAnywhere && len(whole) > 0 {
			whole = whole[:len(whole)-1]
		}
		require.LessOrEqual(t, len(whole), len(intact))
		for i, r := range whole {
			require.Equal(t, intact[i], r, "cut off at %d", n)
		}
	}
}

func (s Suite) flipAnywhere(t *testing.T, shard []byte) {
	damaged := bytes.Clone(shard)
	for i := 0; i < len(damaged); i += Stride() {
		bit := byte(1) << (i * 5 % 8)
		damaged[i] ^= bit
		s.requireNaive(t, damaged)
		damaged[i] ^= bit
	}
}

func (s Suite) drawDamaged(t *rapid.T) []byte {
	shard := bytes.Clone(s.Draw(t))
	for range rapid.IntRange(0, 3).Draw(t, "edits") {
		if len(shard) == 0 {
			break
		}
		at := rapid.IntRange(0, len(shard)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "edit") {
		case 0:
			shard[at] = rapid.Byte().Draw(t, "byte")
		case 1:
			shard = shard[:at]
		default:
			shard = append(shard[:at:at], shard[min(len(shard), at+rapid.IntRange(1, 600).Draw(t, "gap")):]...)
		}
	}
	return shard
}

// windows indexes through sources that return as little as they may, and several sizes more.
func (s Suite) windows(t *testing.T, shard []byte) {
	for _, cut := range []int{len(shard), len(shard) / 2, len(shard) - 1} {
		want := s.requireNaive(t, shard[:cut])
		for _, more := range []int{0, 1, 3, 7, 100, 511, 512, 4096} {
			var records []Record
			err := s.Format.Index(context.Background(), &steppedSource{bytes: shard[:cut], more: more}, collect(&records))
			if want.err != nil { // it is refused
				require.Equal(t, want.err, err)
				continue
			}
			require.Equal(t, want.records, records)
			if want.summary.Damage == nil {
				require.NoError(t, err)
				continue
			}
			require.Equal(t, want.summary.Damage, err)
		}
	}
}

var errFault = errors.New("input/output error")

// faults fails read 0, 1, 2 … until a scan makes no more reads.
func (s Suite) faults(t *testing.T, shard []byte) {
	for _, v := range append(variants(shard), variant{name: "plain", raw: shard}) {
		for k := 0; ; k++ {
			raw := &faultyReader{bytes: v.raw, failAt: k}
			summary, err := format.Scan(context.Background(), s.Format, v.codec, raw, int64(len(v.raw)), func(format.Extent) error { return nil }, func() {})
			if raw.reads <= k {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, errFault, "%s, read %d", v.name, k)
			require.Nil(t, summary.Damage)
		}
	}
}

func (s Suite) emitErrors(t *testing.T, shard []byte, intact []Record) {
	for k := range intact {
		n := 0
		_, err := format.Scan(context.Background(), s.Format, nil, bytes.NewReader(shard), int64(len(shard)), func(format.Extent) error {
			if n++; n > k {
				return errFault
			}
			return nil
		}, func() {})
		require.Equal(t, errFault, err)
		require.Equal(t, k+1, n, "nothing is emitted after an error")
	}
}

func (s Suite) empty(t *testing.T) {
	for _, codec := range append(codecs(), nil) {
		got := scan(context.Background(), s.Format, codec, nil)
		if codec == nil && s.Naive(nil).Refused {
			require.ErrorAs(t, got.err, new(*format.RefusedError))
			continue
		}
		require.NoError(t, got.err)
		_, may := s.Format.(format.Emptyable)
		require.Equal(t, codec != nil || !may, got.summary.Damage != nil)
		require.Empty(t, got.records)
	}
}

func (s Suite) cancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, shard := range s.Shards {
		got := scan(ctx, s.Format, nil, shard.Bytes)
		require.ErrorIs(t, got.err, context.Canceled)
	}
}

// steppedSource is a Source that returns the requested bytes and a few more, and overwrites what it
// returned before, as its contract allows.
type steppedSource struct {
	bytes []byte
	at    int64
	more  int
	lent  []byte
}

func (s *steppedSource) OffsetBytes() int64 { return s.at }

func (s *steppedSource) Window(min int) ([]byte, error) {
	if min > format.MaxWindowBytes {
		panic(fmt.Sprintf("a window of %d bytes was asked for", min))
	}
	s.poison()
	rest := s.bytes[s.at:]
	if len(rest) < min {
		s.lent = append([]byte(nil), rest...)
		return s.lent, io.EOF
	}
	if len(rest) > min+s.more {
		rest = rest[:min+s.more]
	}
	s.lent = append([]byte(nil), rest...)
	return s.lent, nil
}

func (s *steppedSource) Discard(n int64) error {
	s.poison()
	if n > int64(len(s.bytes))-s.at {
		s.at = int64(len(s.bytes))
		return io.ErrUnexpectedEOF
	}
	s.at += n
	return nil
}

func (s *steppedSource) poison() {
	for i := range s.lent {
		s.lent[i] = 0xdb
	}
	s.lent = nil
}

// faultyReader fails one of its reads.
type faultyReader struct {
	bytes  []byte
	failAt int
	reads  int
}

func (f *faultyReader) ReadAt(p []byte, off int64) (int, error) {
	f.reads++
	if f.reads-1 == f.failAt {
		return 0, errFault
	}
	n := copy(p, f.bytes[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
