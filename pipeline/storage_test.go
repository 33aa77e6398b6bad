package pipeline

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// Streams have the same bytes whatever the storage's profile is, even if reads bypass the page
// cache.
func TestStreamsDoNotDependOnStorageProfile(t *testing.T) {
	profiles := []storage.Profile{
		{Kind: storage.KindDisk, GapBytes: 0, ReadBytes: 4 << 10, Depth: 1, InFlightBytes: 4 << 10, AlignBytes: 1},
		{Kind: storage.KindSSD, GapBytes: 1 << 20, ReadBytes: 4 << 10, Depth: 128, InFlightBytes: 512 << 10, AlignBytes: 4 << 10},
		{Kind: storage.KindNetwork, GapBytes: 0, ReadBytes: 4 << 20, Depth: 1, InFlightBytes: 4 << 20, AlignBytes: 512},
		{Kind: storage.KindVirtual, GapBytes: 1 << 20, ReadBytes: 4 << 20, Depth: 128, InFlightBytes: 512 << 20, AlignBytes: 4 << 10},
	}
	plain := makePlainLines(t)
	for _, strategy := range []spec.Read{spec.ReadScan, spec.ReadGather} {
		for _, direct := range []spec.Direct{spec.DirectOff, spec.DirectOn} {
			t.Run(string(strategy)+"/direct "+string(direct), func(t *testing.T) {
				s := testSpec(t, plain)
				s.Read, s.Direct, s.MemoryBytes = strategy, direct, 2<<20
				var want []byte
				for _, p := range profiles {
					d, err := Open(context.Background(), s, Options{Storage: &p})
					require.NoError(t, err)
					require.Equal(t, p.Or(), d.Status().Storage, "with the defaults of its kind")
					set, err := d.Set(context.Background(), 0, nil, s.Deal)
					require.NoError(t, err)
					got := readFile(t, set, 1, stream.Data, 100_000)
					require.NoError(t, d.Close())
					require.NotEmpty(t, got)
					if want == nil {
						want = got
					}
					require.True(t, bytes.Equal(want, got), "%v", p)
				}
			})
		}
	}
}

// Shards are indexed by the reads that the profile prefers, and the result is the same.
func TestIndexPassFollowsStorageProfile(t *testing.T) {
	dir := makePlainLines(t)
	var reads []uint64
	var fingerprints []string
	for _, pass := range []storage.Pass{{}, {ReadBytes: 16 << 10, Shards: 1}} {
		d, err := Open(context.Background(), testSpec(t, dir), Options{Storage: &storage.Profile{
			Kind: storage.KindSSD, ReadBytes: 1 << 20, Depth: 64, InFlightBytes: 1 << 20, AlignBytes: 4 << 10, Pass: pass}})
		require.NoError(t, err)
		reads, fingerprints = append(reads, d.Status().Engine.Reads), append(fingerprints, d.Fingerprint())
		require.NoError(t, d.Close())
	}
	require.Greater(t, reads[1], 4*reads[0], "%v", reads)
	require.Equal(t, fingerprints[0], fingerprints[1])
}
