package probe

import (
	"bytes"
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

func TestTransferStaysWithinBoundWithoutConsent(t *testing.T) {
	p := DefaultPlan()
	in, out := p.trials()
	sum := int64(0)
	for _, x := range in {
		sum += x.mostBytes
		require.GreaterOrEqual(t, x.mostBytes, rounds*x.readBytes*int64(x.depth))
	}
	require.LessOrEqual(t, sum, int64(FreeBytes))
	require.Len(t, append(in, out...), len(p.ReadBytes)*len(p.Depths))
	require.NotEmpty(t, out)
	for _, x := range out {
		require.Greater(t, x.readBytes*int64(x.depth), int64(4<<20), "small ones are measured")
	}
	p.MostBytes = 0
	in, out = p.trials()
	require.Empty(t, out)
	require.Zero(t, in[0].mostBytes)
	p.MostBytes = 1
	in, _ = p.trials()
	require.Empty(t, in)
}

func small() Plan {
	return Plan{ReadBytes: []int64{64 << 10, 1 << 20, 64 << 20}, Depths: []int{1, 4}, Duration: time.Minute, MostBytes: 11 << 20}
}

func TestRatesAreMeasuredWithinTheirBounds(t *testing.T) {
	s := opened(t, serve(t, nil, 100, 3<<20, 100_000))
	p := small()
	done := 0.0
	p.Progress = func(share float64) { require.Greater(t, share, done); done = share }
	r, err := s.Rates(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, r.Cells, 4)
	require.Len(t, r.Left, 2, "no object has 64 MiB, nor has the bound")
	for _, c := range r.Cells {
		require.Positive(t, c.BytesPerSecond)
	}
	require.Equal(t, 1.0, done)
	require.Equal(t, 3, r.Objects)
	require.LessOrEqual(t, r.Bytes, p.MostBytes+100)
	require.Positive(t, r.Bytes)
	require.Zero(t, r.Throttled)

	_, err = opened(t, serve(t, nil, 100)).Rates(t.Context(), p)
	require.ErrorContains(t, err, "name larger files")
}

func TestMeasuringStopsOnError(t *testing.T) {
	var asked atomic.Int64
	handle := func(status int) func(w http.ResponseWriter, r *http.Request, content []byte) {
		return func(w http.ResponseWriter, r *http.Request, content []byte) {
			if r.Method == http.MethodGet && asked.Add(1) > 2 {
				w.WriteHeader(status)
				return
			}
			http.ServeContent(w, r, "x", time.Unix(1e9, 0), bytes.NewReader(content))
		}
	}
	_, err := opened(t, serve(t, handle(http.StatusForbidden), 3<<20)).Rates(t.Context(), small())
	require.ErrorContains(t, err, "403 Forbidden")

	asked.Store(0)
	r, err := opened(t, serve(t, handle(http.StatusServiceUnavailable), 3<<20)).Rates(t.Context(), small())
	require.NoError(t, err, "throttling is counted")
	require.Positive(t, r.Throttled)

	ctx, cancel := context.WithCancel(t.Context())
	s := opened(t, serve(t, func(w http.ResponseWriter, r *http.Request, content []byte) {
		if r.Method == http.MethodGet {
			cancel()
		}
		http.ServeContent(w, r, "x", time.Unix(1e9, 0), bytes.NewReader(content))
	}, 3<<20))
	_, err = s.Rates(ctx, small())
	require.ErrorIs(t, err, context.Canceled)
}

func TestProfileFollowsFromRates(t *testing.T) {
	cell := func(kib int64, depth int, rate float64) filesystem.Measurement {
		return filesystem.Measurement{ReadBytes: kib << 10, Depth: depth, BytesPerSecond: rate * 1e6}
	}
	now := time.Unix(1e9, 0)
	d := storage.DefaultProfile(storage.KindObject)
	for _, c := range []struct {
		name      string
		cells     []filesystem.Measurement
		readBytes int64
		depth     int
		inFlight  int64
	}{
		{"a full link, whatever is asked for", []filesystem.Measurement{cell(256, 16, 100), cell(256, 256, 100), cell(16<<10, 16, 99)}, d.ReadBytes, 16, leastInFlight},
		{"latency counts", []filesystem.Measurement{cell(256, 16, 100), cell(256, 64, 400), cell(256, 256, 800), cell(4096, 16, 900), cell(16<<10, 16, 950)}, d.ReadBytes, 256, 64 << 20},
		{"large ranges are slow", []filesystem.Measurement{cell(256, 16, 500), cell(1024, 16, 900), cell(16<<10, 16, 100)}, 1 << 20, 16, leastInFlight},
		{"large ranges were not measured", []filesystem.Measurement{cell(256, 16, 500), cell(1024, 16, 900)}, d.ReadBytes, 16, leastInFlight},
		{"only the largest are fast", []filesystem.Measurement{cell(256, 16, 100), cell(16<<10, 64, 900)}, 16 << 20, 16, d.InFlightBytes},
		{"nothing came", []filesystem.Measurement{cell(256, 16, 0)}, d.ReadBytes, 16, leastInFlight},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, why := Derive(storage.KindObject, c.cells, now)
			require.NoError(t, p.Validate())
			require.Equal(t, c.readBytes, p.ReadBytes)
			require.Equal(t, c.depth, p.Depth)
			require.Equal(t, c.inFlight, p.InFlightBytes)
			require.Equal(t, d.GapBytes, p.GapBytes)
			require.Len(t, why, 3)
		})
	}
}
