package verify

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// subject returns a dataset of equal shards, cut into chunks of one size.
func subject(shards, records uint64) quality.Subject {
	var starts []uint64
	for s := range shards + 1 {
		starts = append(starts, s*records)
	}
	return quality.Subject{ShardStarts: starts, ChunkStarts: func(_, chunkRecords uint64) []uint64 {
		var chunks []uint64
		for s := range shards {
			for at := uint64(0); at < records; at += chunkRecords {
				chunks = append(chunks, s*records+at)
			}
		}
		return append(chunks, shards*records)
	}}
}

func TestEveryOrderKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := OrderConfig{Order: spec.Default().Order, Deal: spec.Default().Deal, Subject: subject(rapid.Uint64Range(1, 9).Draw(t, "shards"), rapid.Uint64Range(1, 300).Draw(t, "records"))}
		c.Epoch = rapid.Uint64Range(0, 5).Draw(t, "epoch")
		c.Order.Seed = rapid.Uint64().Draw(t, "seed")
		c.Order.Shuffle = rapid.SampledFrom([]spec.Shuffle{spec.ShuffleNone, spec.ShuffleBlock, spec.ShuffleReservoir, spec.ShuffleFull}).Draw(t, "shuffle")
		c.Order.SizeRecords = rapid.Uint64Range(1, 500).Draw(t, "size")
		c.Order.Groups = rapid.Uint64Range(1, 3).Draw(t, "groups")
		c.Order.Lanes = c.Order.Groups * rapid.Uint64Range(1, 5).Draw(t, "lanes")
		c.Order.ChunkRecords = rapid.Uint64Range(1, 50).Draw(t, "chunk")
		c.Deal.Workers = rapid.Uint64Range(1, 12).Draw(t, "workers")
		c.Deal.Batch = rapid.Uint64Range(1, 7).Draw(t, "batch")
		if c.Order.Groups > 1 {
			c.Order.Batch = c.Deal.Batch
		} else if rapid.Bool().Draw(t, "contiguous") {
			c.Deal.Dealing = spec.DealContiguous
		}
		r, err := Order(context.Background(), c)
		require.NoError(t, err)
		require.True(t, r.Holds(), "%+v", r.Claims)
		require.Len(t, r.Claims, 2+resumes)
		require.Equal(t, c.Subject.ShardStarts[len(c.Subject.ShardStarts)-1], r.Claims[0].Records)
	})
}

func TestNonPermutationIsDetected(t *testing.T) {
	for problem, g := range map[string][]uint64{
		"position 2 has record 0, which occurred before": {0, 1, 0, 2},
		"position 1 has record 4 of 4":                   {0, 4, 2, 3},
		"only 3 of 4 records occurred":                   {3, 0, 1},
	} {
		c := permutation(4, nil, func(visit func(position, record uint64) bool) {
			for i, record := range g {
				if !visit(uint64(i), record) {
					return
				}
			}
		})
		require.Equal(t, problem, c.Problem)
		require.False(t, OrderReport{Claims: []Claim{c}}.Holds())
	}
}

// dealtBy is a view with given sequences.
type dealtBy [][]uint64

func (v dealtBy) Count(w uint64) uint64 { return uint64(len(v[w])) }

func (v dealtBy) Records(w, k uint64, dst []uint64) int {
	return copy(dst, v[w][min(k, uint64(len(v[w]))):])
}

func TestStreamsNotMatchingAssignmentAreDetected(t *testing.T) {
	two := spec.Assignment{Workers: 2, Batch: 2, Dealing: spec.DealInterleaved}
	for _, c := range []struct {
		view dealtBy
		deal spec.Assignment
		want string
	}{
		{dealtBy{{10, 11, 14, 15}, {12, 13, 16}}, two, ""},
		{dealtBy{{10, 11, 14, 15}, {13, 12, 16}}, two, "record 0 of worker 1 is record 13 of the dataset, not 12"},
		{dealtBy{{10, 11}, {12, 13, 16}}, two, "worker 0 lacks record 2"},
		{dealtBy{{10, 11, 14, 15, 9}, {12, 13, 16}}, two, "8 records in total, not 7"},
		{dealtBy{{10, 11, 12, 13}, {14, 15, 16}}, spec.Assignment{Workers: 2, Batch: 1, Dealing: spec.DealContiguous}, ""},
		{dealtBy{{10, 11, 12}, {13, 14, 15, 16}}, spec.Assignment{Workers: 2, Batch: 1, Dealing: spec.DealContiguous}, "worker 0 lacks record 3"},
	} {
		s, problem := newStreams(c.view, c.deal, 7), ""
		for record := uint64(10); record < 17 && problem == ""; record++ {
			problem = s.expect(record)
		}
		if problem == "" {
			problem = s.end()
		}
		if c.want == "" {
			require.Empty(t, problem)
			require.NotEmpty(t, s.expect(17), "more than there are")
			continue
		}
		require.Contains(t, problem, c.want)
	}
}

func TestMixingIsComparedWithBufferOverShardsAndFullPermutation(t *testing.T) {
	c := OrderConfig{Order: spec.Default().Order, Deal: spec.Default().Deal, Subject: subject(50, 1000), Predicted: 1.5}
	c.Order.SizeRecords = 1000
	var steps []string
	c.Step = func(claim string) { steps = append(steps, claim) }
	r, err := Order(context.Background(), c)
	require.NoError(t, err)
	require.Len(t, r.Mixing, 3)
	ours, buffer, full := r.Mixing[0], r.Mixing[1], r.Mixing[2]
	require.InDelta(t, 1, full.Value, 0.1)
	require.InDelta(t, 0.02, full.Independent, 1e-9)
	require.InDelta(t, 0.02, full.Neighbours, 0.01)
	require.Greater(t, buffer.Value, 3*ours.Value)
	require.Greater(t, buffer.Neighbours, 2*full.Neighbours)
	require.Equal(t, 1.5, ours.Predicted)
	require.Len(t, steps, 3+resumes)
	require.True(t, slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, "after ") }))
}

func TestCancellingStopsProof(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Order(ctx, OrderConfig{Order: spec.Default().Order, Deal: spec.Default().Deal, Subject: subject(5, 10)})
	require.ErrorIs(t, err, context.Canceled)
}
