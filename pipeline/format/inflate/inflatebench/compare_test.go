package inflatebench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBothDecodersDecodeEachRow(t *testing.T) {
	for _, row := range Rows() {
		c, err := Compare(context.Background(), row, 1, time.Nanosecond)
		require.NoError(t, err, row.Name)
		require.Positive(t, c.Ratio)
		require.Positive(t, c.Speed)
	}
}

func TestComparisonStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Compare(ctx, Rows()[0], 1, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
}

// BenchmarkGzip decodes each row with both.
func BenchmarkGzip(b *testing.B) {
	var other Other
	for _, row := range Rows() {
		decoded, file, err := row.File()
		require.NoError(b, err)
		p := make([]byte, ReadBytes)
		for name, decode := range map[string]func(file, p []byte) (int64, error){"own": Decode, "other": other.Decode} {
			b.Run("data="+row.Name+"/by="+name, func(b *testing.B) {
				b.SetBytes(int64(len(decoded)))
				b.ReportAllocs()
				for b.Loop() {
					n, err := decode(file, p)
					require.NoError(b, err)
					require.Equal(b, int64(len(decoded)), n)
				}
				b.ReportMetric(float64(len(decoded))/float64(len(file)), "decoded/raw")
			})
		}
	}
}
