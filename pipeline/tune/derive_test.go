package tune

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// device models a storage: a read of n bytes takes latency + n·perByte, of which request +
// n·perByte are the storage's own time, which other reads can't use.
type device struct {
	latency, request, perByte float64 // seconds
	// crowded is how much slower everything gets for each MiB in flight.
	crowded float64
}

func (d device) rate(n int64, depth int) float64 {
	bytes := float64(n)
	reads := min(float64(depth)/(d.latency+bytes*d.perByte), 1/(d.request+bytes*d.perByte))
	return reads * bytes / (1 + d.crowded*float64(n*int64(depth))/(1<<20))
}

func (d device) cells() []filesystem.Measurement {
	c := Default("")
	cells := newTimetable(&c, c.Duration).cells
	for i := range cells {
		cells[i].BytesPerSecond = d.rate(cells[i].ReadBytes, cells[i].Depth)
	}
	return cells
}

func drawDevice(t *rapid.T) device {
	d := device{
		request: math.Pow(10, rapid.Float64Range(-6, -2).Draw(t, "request (log10 s)")),
		perByte: 1 / math.Pow(10, rapid.Float64Range(7.5, 10).Draw(t, "bandwidth (log10)")),
		crowded: rapid.Float64Range(0, 0.02).Draw(t, "crowded"),
	}
	d.latency = d.request * rapid.Float64Range(1, 64).Draw(t, "latency/request")
	return d
}

func derive(t require.TestingT, cells []filesystem.Measurement) Derived {
	return deriveCopying(t, cells, 0)
}

func deriveCopying(t require.TestingT, cells []filesystem.Measurement, copyRate float64) Derived {
	d, err := Derive(cells, copyRate, storage.DefaultProfile(storage.KindUnknown))
	require.NoError(t, err)
	require.Len(t, d.Reasons, 4)
	for _, why := range d.Reasons {
		require.NotContains(t, why, "NaN")
	}
	return d
}

// requireSound checks that derived values make a profile, with measured sizes.
func requireSound(t require.TestingT, d Derived, cells []filesystem.Measurement) {
	p := storage.Profile{Kind: storage.KindUnknown, GapBytes: d.GapBytes, ReadBytes: d.ReadBytes, Depth: d.Depth, InFlightBytes: d.InFlightBytes, AlignBytes: blockBytes}.Or()
	require.NoError(t, p.Validate())
	require.GreaterOrEqual(t, d.GapBytes, int64(blockBytes))
	require.LessOrEqual(t, d.GapBytes, int64(maxGapBytes))
	require.True(t, slices.ContainsFunc(cells, func(c filesystem.Measurement) bool { return c.Depth == d.Depth }))
	require.True(t, slices.ContainsFunc(cells, func(c filesystem.Measurement) bool {
		return c.ReadBytes == d.ReadBytes && c.ReadBytes*int64(c.Depth) == d.InFlightBytes
	}), "a cell that can be marked")
	require.GreaterOrEqual(t, d.RequestSeconds, 0.0)
	require.GreaterOrEqual(t, d.ByteSeconds, 0.0)
}

func TestDerivedProfileIsNearOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDevice(t)
		cells := m.cells()
		d := derive(t, cells)
		requireSound(t, d, cells)
		require.GreaterOrEqual(t, d.ReadBytes, int64(largeBytes))
		best := 0.0
		for _, c := range cells {
			if c.ReadBytes >= largeBytes {
				best = max(best, c.BytesPerSecond)
			}
		}
		require.GreaterOrEqual(t, m.rate(d.ReadBytes, int(d.InFlightBytes/d.ReadBytes)), flightShare*readShare*best)
		for _, n := range []int64{4 << 10, 16 << 10, 64 << 10} {
			most := 0.0
			for _, c := range cells {
				if c.ReadBytes == n {
					most = max(most, c.BytesPerSecond)
				}
			}
			require.GreaterOrEqual(t, m.rate(n, d.Depth), 0.8*most, "three sizes together are within 5 %")
		}
	})
}

// A storage that is busy at every depth shows what a request costs: the gap is that cost, in bytes
// that are read and copied.
func TestGapEqualsCostOfRequestInBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDevice(t)
		m.latency, m.crowded = m.request, 0
		copySeconds := m.perByte * rapid.Float64Range(0.01, 10).Draw(t, "copying/reading")
		d := deriveCopying(t, m.cells(), 1/copySeconds)
		want := min(max(m.request/(m.perByte+copySeconds), blockBytes), maxGapBytes)
		require.InDelta(t, want, d.GapBytes, blockBytes+1)
		require.InEpsilon(t, m.request, d.RequestSeconds, 1e-3)
		require.InEpsilon(t, m.perByte, d.ByteSeconds, 1e-3)
		for _, c := range d.Costs {
			require.InEpsilon(t, c.Seconds, c.FittedSeconds, 1e-3)
		}
		require.Len(t, d.Costs, 9, "one of each size")
		d = derive(t, m.cells())
		require.InDelta(t, min(max(m.request/m.perByte, blockBytes), maxGapBytes), d.GapBytes, blockBytes+1)

		slower := m
		slower.request *= rapid.Float64Range(1, 100).Draw(t, "slower")
		slower.latency = slower.request
		require.GreaterOrEqual(t, derive(t, slower.cells()).GapBytes, d.GapBytes, "dearer requests, larger gaps")
		faster := m
		faster.perByte /= rapid.Float64Range(1, 100).Draw(t, "faster")
		require.GreaterOrEqual(t, derive(t, faster.cells()).GapBytes, d.GapBytes, "cheaper bytes, larger gaps")
	})
}

func TestSlowerStorageNeedsMoreInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDevice(t)
		m.crowded = 0
		d := derive(t, m.cells())
		m.latency *= rapid.Float64Range(1, 20).Draw(t, "longer")
		longer := derive(t, m.cells())
		require.GreaterOrEqual(t, longer.Depth, d.Depth)
		require.GreaterOrEqual(t, longer.InFlightBytes, d.InFlightBytes)
	})
}

func TestOnlyRatiosMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := drawDevice(t).cells()
		d := derive(t, cells)
		copyRate := cells[0].BytesPerSecond * 3
		d = deriveCopying(t, cells, copyRate)
		for i := range cells {
			cells[i].BytesPerSecond *= 1 << 5
		}
		scaled := deriveCopying(t, cells, copyRate*(1<<5))
		require.Equal(t, [4]int64{int64(d.Depth), d.InFlightBytes, d.ReadBytes, d.GapBytes},
			[4]int64{int64(scaled.Depth), scaled.InFlightBytes, scaled.ReadBytes, scaled.GapBytes})
	})
}

// Any measurements give a profile, even nonsense with holes in it.
func TestAnyMeasurementsYieldProfile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []filesystem.Measurement
		for _, c := range drawDevice(t).cells() {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				continue
			case 1:
				c.BytesPerSecond *= math.Pow(10, rapid.Float64Range(-3, 3).Draw(t, "off"))
			case 2:
				c.BytesPerSecond = rapid.SampledFrom([]float64{0, -1, math.Inf(1), math.NaN()}).Draw(t, "rate")
			}
			cells = append(cells, c)
		}
		sound := slices.DeleteFunc(slices.Clone(cells), func(c filesystem.Measurement) bool { return !(c.BytesPerSecond > 0) || math.IsInf(c.BytesPerSecond, 0) })
		before := slices.Clone(cells)
		if len(sound) == 0 {
			return
		}
		requireSound(t, derive(t, cells), sound)
		require.Equal(t, len(before), len(cells), "the caller's")
		one := sound[rapid.IntRange(0, len(sound)-1).Draw(t, "the only one")]
		d := derive(t, []filesystem.Measurement{one})
		requireSound(t, d, []filesystem.Measurement{one})
		require.Equal(t, storage.DefaultProfile(storage.KindUnknown).GapBytes, d.GapBytes)
	})
	_, err := Derive([]filesystem.Measurement{{ReadBytes: 4096, Depth: 1}}, 0, storage.Profile{})
	require.EqualError(t, err, "nothing was measured")
}

// Measurements of the virtual disk of a small machine (November 2026), and the reasons derived from
// them.
func TestReasonsAreReadable(t *testing.T) {
	var cells []filesystem.Measurement
	for n, row := range map[int64]string{
		4: "0.036 0.061 0.100 0.173 0.222 0.279 0.320 0.352", 16: "0.142 0.250 0.386 0.578 0.754 0.894 0.998 1.061",
		64: "0.421 0.796 1.147 1.558 1.873 2.002 2.127 2.102", 128: "0.854 1.376 1.774 2.172 2.371 2.523 2.459 2.249",
		256: "1.392 1.778 2.380 2.626 2.802 2.472 2.495 2.273", 512: "2.099 2.486 2.816 2.968 2.717 2.459 2.440",
		1024: "2.483 2.999 3.210 2.887 2.669 2.527", 2048: "3.079 3.254 2.978 2.696 2.609", 4096: "3.133 2.916 2.760 2.539",
	} {
		for i, text := range strings.Fields(row) {
			cells = append(cells, filesystem.Measurement{ReadBytes: n << 10, Depth: 1 << i, BytesPerSecond: number(t, text) * (1 << 30)})
		}
	}
	require.Equal(t, []string{
		"64 at a time: so many small reads get 95 % of the best, 32 get 86 %",
		"4.0 MiB at a time: large reads then get up to 3.3 GiB/s, with 2.0 MiB 3.1 GiB/s",
		"reads of up to 512 KiB: they then get 3.0 GiB/s, those of 256 KiB 2.8 GiB/s",
		"gaps of up to 24 KiB: a request costs 10.6 µs of the storage's time; a byte 0.287 ns (3.2 GiB/s), and 0.125 ns to copy: 25 KiB cost as much as a request",
	}, deriveCopying(t, cells, 8e9).Reasons)
}

// Merging ranges across gaps of up to the fitted size is optimal: no other gap makes a plan whose
// reads cost less, whatever the sizes of records and the distances between them. So the gap need
// not depend on them.
func TestNoOtherGapIsCheaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := rapid.Int64Range(1, 1000).Draw(t, "request (in bytes' time)")
		r := plan.Request{ObjectBytes: []int64{1 << 40}}
		at, largest := int64(0), rapid.Int64Range(1, 2000).Draw(t, "largest record")
		for range rapid.IntRange(1, 200).Draw(t, "records") {
			at += rapid.Int64Range(0, 3*request).Draw(t, "gap")
			n := rapid.Int64Range(1, largest).Draw(t, "size")
			r.Want = append(r.Want, plan.Range{OffsetBytes: at, SizeBytes: n})
			at += n
		}
		cost := func(gap int64) int64 {
			p, err := plan.New(plan.Config{MergeGapBytes: gap, MaxReadBytes: 1 << 40, AlignBytes: 1})
			require.NoError(t, err)
			made, err := p.Plan(r)
			require.NoError(t, err)
			return int64(made.Totals.Reads)*request + made.Totals.ReadBytes
		}
		best := cost(request)
		for _, gap := range []int64{0, request / 4, request / 2, request - 1, request + 1, 2 * request, 4 * request, rapid.Int64Range(0, 5000).Draw(t, "any")} {
			require.LessOrEqual(t, best, cost(gap), "gap %d", gap)
		}
	})
}
