package remote

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// busy simulates a second of a service that returns 1 MiB for each slot, up to useful
// slots.
func busy(s *slots, now time.Time, useful int) time.Time {
	for range 10 {
		now = now.Add(100 * time.Millisecond)
		s.completed(now, s.limit, 1, int64(min(s.limit, useful))<<20)
	}
	return now
}

func TestSlotsGrowWhileThroughputImproves(t *testing.T) {
	s, now := newSlots(128), noon
	var limits []int
	for range 5 {
		now = busy(&s, now, 1<<20)
		limits = append(limits, s.limit)
	}
	require.Equal(t, []int{16, 32, 64, 128, 128}, limits)

	s, now = newSlots(128), noon
	for range 60 {
		now = busy(&s, now, 40)
	}
	require.LessOrEqual(t, s.limit, 80, "from 40 on nothing is gained: a doubling, and one growth that is being tried")
	require.GreaterOrEqual(t, s.limit, 40)

	s, now = newSlots(128), noon
	for range 60 {
		now = now.Add(200 * time.Millisecond)
		s.completed(now, s.limit, 0, 1<<20)
	}
	require.Equal(t, 16, s.limit, "nothing waits")
}

// Rates vary randomly from second to second, by a quarter either way: slots grow anyway, as far as
// they are useful.
func TestSlotsGrowDespiteUnevenRates(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	reached := 0
	const runs = 200
	for range runs {
		s, now := newSlots(128), noon
		for range 15 {
			chance := 0.75 + 0.5*random.Float64()
			for range 10 {
				now = now.Add(100 * time.Millisecond)
				s.completed(now, s.limit, 1, int64(float64(s.limit<<20)*chance))
			}
		}
		if s.limit >= 100 {
			reached++
		}
	}
	require.GreaterOrEqual(t, reached, runs*8/10)
}

func TestSlotsHalveOncePerSecond(t *testing.T) {
	s := newSlots(128)
	s.limit = 100
	for range 50 {
		s.throttled(noon)
	}
	require.Equal(t, 50, s.limit)
	s.throttled(noon.Add(999 * time.Millisecond))
	require.Equal(t, 50, s.limit)
	for i := range 20 {
		s.throttled(noon.Add(time.Duration(i+1) * time.Second))
	}
	require.Equal(t, fewestSlots, s.limit)
	require.Equal(t, 100, s.before)
	require.True(t, s.resting(noon.Add(29*time.Second)))
	require.False(t, s.resting(noon.Add(30*time.Second)))

	now := noon.Add(40 * time.Second)
	s.second = now
	for range 8 {
		now = busy(&s, now, 1<<20)
	}
	require.GreaterOrEqual(t, s.limit, 90, "what was there before is there again soon")
}

// Whatever happens, the limit stays within its bounds.
func TestSlotsStayInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, MaxConnections).Draw(t, "most")
		s, now := newSlots(most), noon
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "later")))
			if rapid.Bool().Draw(t, "throttled") {
				s.throttled(now)
			} else {
				s.completed(now, rapid.IntRange(0, s.limit).Draw(t, "used"), rapid.IntRange(0, 2).Draw(t, "waiting"), rapid.Int64Range(0, 1<<30).Draw(t, "bytes"))
			}
			require.LessOrEqual(t, s.limit, most)
			require.GreaterOrEqual(t, s.limit, min(fewestSlots, most))
		}
	})
}

// In an outage, when each request would be hedged, hedges are limited to 16 and then 5 %.
func TestHedgesAreBudgeted(t *testing.T) {
	b, made := budget{tokens: hedgeBurst}, 0
	for range 10_000 {
		b.earn()
		for range hedgesAtOnce {
			if b.spend() {
				made++
			}
		}
	}
	require.InDelta(t, hedgeBurst+500, made, 1)
	for range 10_000 {
		b.earn()
	}
	require.EqualValues(t, hedgeBurst, b.tokens)
	require.Equal(t, 100*time.Millisecond, pace{}.silence())
	require.Equal(t, 500*time.Millisecond, pace{first: 250 * time.Millisecond}.silence())
	require.Equal(t, 2*time.Second, pace{first: time.Minute}.silence())
	require.Equal(t, 2*time.Second, newHedges().pace[0].silence(), "before it is known how long answers take")
}

// A read's rank is that of the nearest want it overlaps, among those of all readers.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := plans{}
		model := map[uint64][]storage.Block{}
		for range rapid.IntRange(0, 6).Draw(t, "plans") {
			reader := rapid.Uint64Range(1, 3).Draw(t, "reader")
			var wants []storage.Block
			for range rapid.IntRange(0, 8).Draw(t, "wants") {
				wants = append(wants, storage.Block{
					Object:      storage.Object{Path: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "path")},
					OffsetBytes: rapid.Int64Range(0, 40).Draw(t, "begin"), SizeBytes: rapid.Int64Range(1, 30).Draw(t, "size"),
					DueBytes: rapid.Int64Range(0, 3).Draw(t, "due"),
				})
			}
			p.set(reader, spansOf(wants))
			model[reader] = wants
		}
		begin := rapid.Int64Range(0, 60).Draw(t, "read")
		end := begin + rapid.Int64Range(1, 10).Draw(t, "length")
		fill := rapid.Bool().Draw(t, "fill")
		want, due := demanded, int64(0)
		if fill {
			want = filling
		}
		nearest := int64(-1)
		for _, wants := range model {
			for _, w := range wants {
				if w.Object.Path == "a" && w.OffsetBytes < end && w.OffsetBytes+w.SizeBytes > begin && (nearest < 0 || w.DueBytes < nearest) {
					nearest = w.DueBytes
				}
			}
		}
		switch {
		case nearest == 0:
			want = demanded
		case nearest > 0:
			want, due = planned, nearest
		}
		got, gotDue := p.class("a", begin, end, fill)
		require.Equal(t, want, got)
		require.Equal(t, due, gotDue)
	})
}
