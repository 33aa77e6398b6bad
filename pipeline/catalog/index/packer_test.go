package index

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// plainShard is a shard's index as plain slices.
type plainShard struct {
	extents []format.Extent
	members []format.Member // nil: not compressed
	points  []format.Point
	damage  *format.CorruptError
	decoded int64
	kind    string
}

func (s *plainShard) pack(t require.TestingT, keyed bool) Blob {
	p := NewPacker(keyed, s.members != nil, MaxPackedBytes)
	for _, e := range s.extents {
		require.NoError(t, p.Add(e))
	}
	b, err := p.Finish(format.Summary{DecodedBytes: s.decoded, Members: s.members, Points: s.points, Kind: s.kind, Damage: s.damage})
	require.NoError(t, err)
	return b
}

// sealingOf returns a sealing of c under smallKey.
func sealingOf(t require.TestingT, c Content) *sealing {
	c.Lines = func(w io.Writer) error {
		_, err := io.WriteString(w, "what the fingerprint is of")
		return err
	}
	s, err := newSealing(c, smallKey)
	require.NoError(t, err)
	return s
}

func writeSealed(t require.TestingT, dir string, s *sealing) *mapping {
	f, err := os.CreateTemp(dir, "")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, s.write(f))
	m, err := (&Store{}).mapWhole(f, false)
	require.NoError(t, err)
	return m
}

func TestAShardWhoseIndexGrowsBeyondAllBoundsIsRefused(t *testing.T) {
	p := NewPacker(true, false, 1<<20)
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		require.Less(t, n, int64(1<<20), "10 bytes a record and more")
		err = p.Add(format.Extent{OffsetBytes: 512 * n, SizeBytes: 512, KeyHash: uint64(n)})
	}
	var refused *format.RefusedError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "split the shard")
	require.Greater(t, n, int64(1<<16))
}

func TestMillionRecordsStayCompact(t *testing.T) {
	s := plainShard{}
	for k := range 100_000 {
		size := 600 + int64(k*2654435761>>7)%1200
		s.extents = append(s.extents, format.Extent{OffsetBytes: s.decoded, SizeBytes: size, KeyHash: uint64(k)})
		s.decoded += size
	}
	for _, keyed := range []bool{false, true} {
		b := s.pack(t, keyed)
		c := Content{Format: "tar", Keyed: keyed}
		for i := range 10 {
			c.Shards = append(c.Shards, Shard{Object: storage.Object{Path: string(rune('a' + i))}, Blob: b})
		}
		m := writeSealed(t, t.TempDir(), sealingOf(t, c))
		i, err := Open(m.data, smallKey)
		require.NoError(t, err)
		require.EqualValues(t, 1_000_000, i.Records())
		limit := 2.0
		if keyed {
			limit += 8
		}
		require.Less(t, float64(len(m.data))/1e6, limit)
		require.NoError(t, m.Close())
	}
}
