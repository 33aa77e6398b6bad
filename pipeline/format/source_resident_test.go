package format_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/format/tfrecord"
)

// inMemory is a file of which some bytes are in memory. holds reports whether they are, and gives
// whether they can be read from there: they may be evicted between the two.
type inMemory struct {
	counted
	holds, gives func(off, n int64) bool
	resident     int64 // bytes that were read from memory
}

func (m *inMemory) Holds(off, n int64) bool { return m.holds(off, n) }

func (m *inMemory) ReadResident(p []byte, off int64) bool {
	if !m.gives(off, int64(len(p))) {
		clear(p) // undefined
		return false
	}
	m.resident += int64(copy(p, m.bytes[off:]))
	return true
}

func always(int64, int64) bool { return true }
func never(int64, int64) bool  { return false }

func TestOnlyHeadersOfCachedShardAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		format format.Format
		shard  []byte
	}{
		"tar":             {tar.Format{}, archive(t, 1000, 11_000, false)},
		"tar with labels": {tar.Format{}, archive(t, 1000, 11_000, true)},
		"tfrecord":        {tfrecord.Format{}, frames(1000, 11_000)},
	} {
		t.Run(name, func(t *testing.T) {
			raw := &inMemory{counted: counted{bytes: c.shard}, holds: always, gives: always}
			n, s := scanned(t, c.format, nil, raw, int64(len(c.shard)))
			require.Equal(t, 1000, n)
			require.Nil(t, s.Damage)
			require.LessOrEqual(t, len(raw.reads), 2, "until it is known how much is passed over")
			require.Less(t, raw.total+raw.resident, int64(len(c.shard)/4))
		})
	}
}

func TestUncachedShardIsReadAsUsual(t *testing.T) {
	for name, size := range map[string]int{"in portions": 11_000, "headers": 100_000} {
		t.Run(name, func(t *testing.T) {
			shard := archive(t, 500, size, true)
			plain := &counted{bytes: shard}
			scanned(t, tar.Format{}, nil, plain, int64(len(shard)))
			cold := &inMemory{counted: counted{bytes: shard}, holds: never, gives: never}
			scanned(t, tar.Format{}, nil, cold, int64(len(shard)))
			require.Equal(t, plain.reads, cold.reads)
			gone := &inMemory{counted: counted{bytes: shard}, holds: always, gives: never}
			scanned(t, tar.Format{}, nil, gone, int64(len(shard)))
			require.Equal(t, plain.reads, gone.reads, "it was evicted meanwhile")
		})
	}
}

func TestSmallCachedRecordsAreReadInLargePortions(t *testing.T) {
	shard := archive(t, 3000, 700, false)
	raw := &inMemory{counted: counted{bytes: shard}, holds: always, gives: always}
	scanned(t, tar.Format{}, nil, raw, int64(len(shard)))
	require.Zero(t, raw.resident)
}

func TestCachedDataDoesNotAffectExtents(t *testing.T) {
	extents := func(t require.TestingT, tested format.Format, raw interface {
		ReadAt([]byte, int64) (int, error)
	}, size int64) (list []format.Extent, damage string) {
		s, err := format.Scan(context.Background(), tested, nil, raw, size, func(e format.Extent) error {
			e.Growth = nil
			list = append(list, e)
			return nil
		}, nil)
		require.NoError(t, err)
		if s.Damage != nil {
			damage = s.Damage.Error()
		}
		return list, damage
	}
	shards := [][]byte{
		archive(t, 200, 4_000, true), archive(t, 200, 12_000, true), archive(t, 100, 40_000, false), frames(300, 9_000),
	}
	rapid.Check(t, func(t *rapid.T) {
		which := rapid.IntRange(0, len(shards)-1).Draw(t, "shard")
		var format format.Format = tar.Format{}
		if which == 3 {
			format = tfrecord.Format{}
		}
		shard := shards[which]
		shard = shard[:rapid.IntRange(1, len(shard)).Draw(t, "size")]
		seed := rapid.Uint64().Draw(t, "seed")
		some := func(share uint64) func(off, n int64) bool {
			return func(off, _ int64) bool {
				seed = seed*6364136223846793005 + 1442695040888963407
				return seed>>33%8 < share
			}
		}
		raw := &inMemory{counted: counted{bytes: shard}, holds: some(6), gives: some(7)}
		want, wantDamage := extents(t, format, bytes.NewReader(shard), int64(len(shard)))
		got, damage := extents(t, format, raw, int64(len(shard)))
		require.Equal(t, want, got)
		require.Equal(t, wantDamage, damage)
	})
}
