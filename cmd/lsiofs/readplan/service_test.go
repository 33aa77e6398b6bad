package readplan

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// imageNet is roughly the dataset with which the design was simulated.
func imageNet() *pipeline.ServiceForecast {
	chunk := func(bytes uint64, inUse bool, requests uint64, mixing float64, memory, disk int64) pipeline.ChunkForecast {
		return pipeline.ChunkForecast{
			ChunkBytes: bytes, InUse: inUse, Chunks: requests, Requests: requests, Bytes: 150e9, Records: pipeline.ChunkRecords{1_280_000 / requests: requests},
			Mixing: mixing, MemoryBytes: memory, DiskBytes: disk,
		}
	}
	return &pipeline.ServiceForecast{Name: "s3://bucket/train", GetDollars: 0.0004 / 1000, Chunks: []pipeline.ChunkForecast{
		chunk(256<<10, true, 445_656, 1.02, 1.22e9, 2.7e9), chunk(1<<20, false, 133_766, 1.07, 1.78e9, 5.5e9),
		chunk(4<<20, false, 35_244, 1.28, 2.01e9, 8.3e9), chunk(8<<20, false, 17_817, 1.56, 2.1e9, 10e9),
	}}
}

func TestPlanShowsServiceCostOfEpoch(t *testing.T) {
	s := spec.Default()
	s.Order.Groups, s.Order.Lanes = 1, 32
	f := imageNet()
	show := func(name string) *Service {
		p := newService(f, s)
		var b strings.Builder
		p.write(&b)
		goldentest.Equal(t, name, b.String())
		return p
	}
	p := show("service.txt")
	require.EqualValues(t, 445_656, p.Requests)
	require.InDelta(t, 0.178, p.Dollars, 0.001)

	f.Name, f.GetDollars, f.Bounded, f.Compressed, f.Chunks = "https://host/train", 0, true, 7, f.Chunks[:1]
	f.Refused = []pipeline.RefusedChunks{{ChunkBytes: 1 << 20, Why: errors.New("--spool-max (1.0 GiB) is less than the order needs at a time: raise it")}}
	f.Chunks[0].Estimated, s.MemoryBytes = true, 4<<30
	p = show("service-web.txt")
	require.Zero(t, p.Dollars)
	require.Empty(t, p.Nodes, "shares are of chunks, not of whole shards")
}
