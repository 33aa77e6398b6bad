package tar_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// BenchmarkIndex measures members per second, for an archive in memory.
func BenchmarkIndex(b *testing.B) {
	const members = 20_000
	for _, headers := range []string{"ustar", "pax"} {
		var a archive
		for i := range members {
			if headers == "pax" {
				a.ext('x', paxRecord("mtime", "1700000000.25"))
			}
			a.file(fmt.Sprintf("a/%06d.%s", i/2, []string{"jpg", "cls"}[i%2]), strings.Repeat("x", 600))
		}
		shard := a.end()
		b.Run("headers="+headers, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(shard)))
			for b.Loop() {
				n := 0
				_, err := format.Scan(context.Background(), tar.Format{}, nil, bytes.NewReader(shard), int64(len(shard)), func(format.Extent) error { n++; return nil }, nil)
				require.NoError(b, err)
				require.Equal(b, members/2, n)
			}
			b.ReportMetric(members*float64(b.N)/b.Elapsed().Seconds(), "members/s")
		})
	}
}
