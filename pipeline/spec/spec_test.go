package spec

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func valid() Spec {
	s := Default()
	s.Dataset = "/data"
	return s
}

func TestDefaultsAreValidOnceDatasetIsSet(t *testing.T) {
	require.NoError(t, valid().Validate())
	require.ErrorContains(t, Default().Validate(), "no dataset given")
}

func TestAllProblemsAreReportedWithFlagValueAndBound(t *testing.T) {
	s := valid()
	s.Order.Lanes, s.Deal.Workers, s.MemoryBytes, s.ReadTimeout = 0, MaxWorkers+1, 5, 0
	err := s.Validate()
	require.Error(t, err)
	require.Len(t, strings.Split(err.Error(), "\n"), 4)
	for _, want := range []string{
		"--lanes (0) must be between 1 and 65536",
		"--workers (65537) must be between 1 and 65536",
		"--memory (5 bytes) must be at least 1MiB",
		"--read-timeout (0s) must be above 0",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestEachInvalidSettingIsNamed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   string
	}{
		{"an unknown shuffle", func(s *Spec) { s.Order.Shuffle = "riffle" }, `--shuffle ("riffle") must be one of reservoir`},
		{"groups that do not divide the lanes", func(s *Spec) { s.Order.Groups, s.Order.Batch, s.Deal.Batch = 5, 4, 4 }, "--groups (5) must divide --lanes (32)"},
		{"a batch that differs from the order's", func(s *Spec) { s.Order.Groups, s.Order.Batch, s.Deal.Batch = 4, 4, 8 }, "--batch (8) must be the order's batch (4)"},
		{"a batch of the order without groups", func(s *Spec) { s.Order.Batch = 4 }, "must be 1 when --groups is 1"},
		{"groups with a contiguous deal that is padded", func(s *Spec) {
			s.Order.Groups, s.Order.Batch, s.Deal.Batch = 4, 4, 4
			s.Deal.Dealing, s.Deal.Tail = DealContiguous, TailPad
		}, "use --tail keep"},
		{"a look-ahead beyond all sense", func(s *Spec) { s.Lookahead = 2 << 40 }, "--lookahead (2199023255552 bytes) must be between 0"},
		{"an unknown deal", func(s *Spec) { s.Deal.Dealing = "random" }, "--deal"},
		{"an unknown tail", func(s *Spec) { s.Deal.Tail = "cut" }, "--tail"},
		{"fixed without a record size", func(s *Spec) { s.Format.Name = "fixed" }, "--record-bytes (0) must be at least 1"},
		{"a record size without fixed", func(s *Spec) { s.Format.RecordBytes = 8 }, "need --format fixed"},
		{"a negative stride", func(s *Spec) {
			s.Format = Format{Name: "fixed", RecordBytes: 1, StrideBytes: -1, Remainder: RemainderDrop}
		}, "--stride-bytes (-1)"},
		{"a negative header", func(s *Spec) {
			s.Format = Format{Name: "fixed", RecordBytes: 1, HeaderBytes: -1, Remainder: RemainderDrop}
		}, "--header-bytes (-1)"},
		{"tensors of another format", func(s *Spec) { s.Format.Name, s.Format.As = "npy", AsTensorsU1 }, `--as tensors:u1 needs --format lc0, not "npy"`},
		{"tensors of an unknown type", func(s *Spec) { s.Format.As = "tensors:f8" }, "--as tensors:f8: the elements of planes are of type u1, f2 or f4"},
		{"an unknown remainder", func(s *Spec) { s.Format.Remainder = "keep" }, "--remainder"},
		{"an unknown io engine", func(s *Spec) { s.IO = "aio" }, "--io"},
		{"an unknown way to bypass the page cache", func(s *Spec) { s.Direct = "maybe" }, "--direct"},
		{"an unknown policy", func(s *Spec) { s.OnCorrupt = "ignore" }, "--on-corrupt"},
		{"chunks of no records", func(s *Spec) { s.Order.ChunkRecords = 0 }, "--chunk-records (0)"},
		{"chunks of no bytes", func(s *Spec) { s.Order.ChunkBytes = 0 }, "--chunk-bytes (0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := valid()
			c.change(&s)
			require.ErrorContains(t, s.Validate(), c.want)
		})
	}
}

func TestStreamsMatchRequest(t *testing.T) {
	for text, want := range map[string]As{"tensors": AsTensorsU1, "tensors:u1": AsTensorsU1, "tensors:f2": AsTensorsF2, "tensors:f4": AsTensorsF4, "": ""} {
		a, err := ParseAs(text)
		require.NoError(t, err)
		require.Equal(t, want, a)
	}
	for text, want := range map[string]string{
		"tensors:": "u1, f2 or f4", "tensors:f8": "u1, f2 or f4", "tensors:U1": "u1, f2 or f4", "frames": `--as "frames": streams can be of tensors`, "tensor": "streams can be of tensors",
	} {
		_, err := ParseAs(text)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, "f2", AsTensorsF2.Element())
	require.Empty(t, As("").Element())
}

func TestDefaultMemoryIsQuarterOfProcessLimit(t *testing.T) {
	for allowed, want := range map[int64]int64{
		math.MaxInt64: 1 << 30, 64 << 30: 1 << 30, 4 << 30: 1 << 30, 2 << 30: 512 << 20, 512 << 20: 128 << 20, 513<<20 - 1: 128 << 20, 10 << 20: 16 << 20, 0: 16 << 20,
	} {
		require.Equal(t, want, MemoryWithin(allowed), "%d", allowed)
	}
}
