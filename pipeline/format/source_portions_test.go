package format_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
)

// portioned is a file of a storage with Portions of its own.
type portioned struct {
	counted
	portions format.Portions
}

func (p *portioned) Portions() format.Portions { return p.portions }

// If a request costs as much as reading a MiB, members of 100 kB are read through; if it costs
// nothing, only the headers of small ones are read.
func TestShardIsReadInPreferredPortionsOfStorage(t *testing.T) {
	large, small := archive(t, 300, 100_000, false), archive(t, 3000, 11_000, false)
	on := &portioned{counted{bytes: large}, format.Portions{ReadBytes: 4 << 20, SkipBytes: 1 << 20, HeaderBytes: 64 << 10}}
	n, _ := scanned(t, tar.Format{}, nil, on, int64(len(large)))
	require.Equal(t, 300, n)
	require.Equal(t, 4<<20, slices.Max(on.reads))
	require.LessOrEqual(t, len(on.reads), len(large)>>22+8)
	require.GreaterOrEqual(t, on.total, int64(len(large)/10*9), "next to all of it")

	headers := &portioned{counted{bytes: small}, format.Portions{ReadBytes: 4 << 10, SkipBytes: 1, HeaderBytes: 1 << 10}}
	n, _ = scanned(t, tar.Format{}, nil, headers, int64(len(small)))
	require.Equal(t, 3000, n)
	require.LessOrEqual(t, slices.Max(headers.reads), 4<<10)
	require.Less(t, headers.total, int64(len(small)/4))

	far := &portioned{counted{bytes: large}, format.Portions{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 64 << 10}}
	scanned(t, tar.Format{}, nil, far, int64(len(large)))
	require.Less(t, far.total, int64(len(large)*3/4), "headers, with what stands behind them")
	require.Greater(t, far.total, int64(len(large)/5))
}

// The result does not depend on the portions.
func TestPortionsDoNotChangeResult(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":      {tar.Format{}, archive(t, 40, 30_000, true)},
		"tfrecord": {tfrecord.Format{}, frames(200, 5_000)},
	} {
		t.Run(name, func(t *testing.T) {
			extents := func(raw *portioned, size int) (found []format.Extent) {
				_, err := format.Scan(context.Background(), c.format, nil, raw, int64(size), func(e format.Extent) error {
					e.Growth = slices.Clone(e.Growth)
					found = append(found, e)
					return nil
				}, nil)
				require.NoError(t, err)
				return found
			}
			scan := func(p format.Portions) []format.Extent {
				return extents(&portioned{counted{bytes: c.shard}, p}, len(c.shard))
			}
			want := scan(format.Portions{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10})
			require.GreaterOrEqual(t, len(want), 40)
			rapid.Check(t, func(t *rapid.T) {
				p := format.Portions{
					ReadBytes: rapid.IntRange(4<<10, 8<<20).Draw(t, "read"), SkipBytes: rapid.Int64Range(1, 1<<20).Draw(t, "skip"),
					HeaderBytes: 1 << rapid.IntRange(10, 20).Draw(t, "header"),
				}
				require.Equal(t, want, scan(p))
			})
		})
	}
}
