package order

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// settings is a random configuration with the order that the naive implementation computes for it.
type settings struct {
	order  spec.Order
	epoch  uint64
	chunks []uint64
	g      []uint64
}

func drawSettings(t *rapid.T) settings {
	s := settings{
		chunks: rapid.SliceOfN(rapid.Uint64Range(1, 40), 1, 30).Draw(t, "chunks"),
		epoch:  rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64()).Draw(t, "epoch"),
		order: spec.Order{
			Seed:        rapid.Uint64().Draw(t, "seed"),
			Shuffle:     rapid.SampledFrom([]spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}).Draw(t, "shuffle"),
			SizeRecords: rapid.OneOf(rapid.Uint64Range(0, 10), rapid.Uint64Range(0, 200), rapid.Uint64Range(0, 2000)).Draw(t, "size"),
			Groups:      rapid.SampledFrom([]uint64{1, 1, 1, 2, 3, 5}).Draw(t, "groups"),
			Batch:       1,
		},
	}
	s.order.Lanes = s.order.Groups * rapid.OneOf(rapid.Uint64Range(1, 8), rapid.Uint64Range(1, 100)).Draw(t, "lanes of a group")
	if s.order.Groups > 1 {
		s.order.Batch = rapid.OneOf(rapid.Uint64Range(1, 8), rapid.Just(uint64(1)<<32)).Draw(t, "order's batch")
	}
	s.g = naiveG(s.order, s.epoch, s.chunks)
	return s
}

func (s settings) newEpoch(t require.TestingT) *Epoch { return newEpoch(t, s.order, s.epoch, s.chunks) }

func (s settings) drawDealing(t *rapid.T) (uint64, spec.Dealing) {
	dealing := rapid.SampledFrom([]spec.Dealing{spec.DealInterleaved, spec.DealInterleaved, spec.DealContiguous}).Draw(t, "dealing")
	batch := s.order.Batch
	if s.order.Groups == 1 && dealing == spec.DealInterleaved {
		batch = rapid.OneOf(rapid.Uint64Range(1, 3), rapid.Uint64Range(1, 50), rapid.Just(uint64(1)<<32)).Draw(t, "batch")
	}
	return batch, dealing
}

// drawDone draws a chain of resumes, and returns the remaining records.
func (s settings) drawDone(t *rapid.T) (done []Done, left []uint64) {
	left = s.g
	for range rapid.IntRange(0, 5).Draw(t, "resumes") {
		d := Done{}
		d.Batch, d.Dealing = s.drawDealing(t)
		workers := rapid.OneOf(rapid.Uint64Range(1, 5), rapid.Uint64Range(1, 50)).Draw(t, "workers")
		shares := naiveDeal(uint64(len(left)), workers, d.Batch, d.Dealing)
		level := rapid.Bool().Draw(t, "level")
		most := rapid.IntRange(0, len(left)).Draw(t, "taken")
		for _, share := range shares {
			c := min(len(share), most/int(workers))
			if !level {
				c = rapid.IntRange(0, len(share)).Draw(t, "consumed")
			}
			d.Consumed = append(d.Consumed, uint64(c))
		}
		left = naiveResume(left, d)
		done = append(done, d)
	}
	return done, left
}

func (s settings) drawDeal(t *rapid.T) spec.Assignment {
	d := spec.Assignment{
		Workers: rapid.OneOf(rapid.Uint64Range(1, 5), rapid.Uint64Range(1, 200)).Draw(t, "deal's workers"),
		Tail:    rapid.SampledFrom([]spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad}).Draw(t, "tail"),
	}
	d.Batch, d.Dealing = s.drawDealing(t)
	if d.Tail == spec.TailPad && d.Dealing == spec.DealInterleaved && d.Batch > 100 {
		d.Tail = spec.TailKeep // the naive implementation would take days to pad
	}
	if s.order.Groups > 1 && d.Dealing == spec.DealContiguous {
		d.Tail = spec.TailKeep
	}
	return d
}

func walk(t require.TestingT, c *Cursor, n, step int) []uint64 {
	got := make([]uint64, 0, n)
	for buffer := make([]uint64, step); len(got) < n; {
		m := c.Next(buffer[:min(step, n-len(got))])
		require.NotZero(t, m)
		got = append(got, buffer[:m]...)
	}
	return got
}

func TestEveryOrderEqualsNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		e := s.newEpoch(t)
		c := e.Cursor(0)
		require.Equal(t, s.g, walk(t, c, len(s.g), rapid.IntRange(1, 400).Draw(t, "step")))
		require.Zero(t, c.Next(make([]uint64, 3)))
		sorted := slices.Sorted(slices.Values(s.g))
		for i, record := range sorted {
			require.Equal(t, uint64(i), record, "a record is missing or there twice")
		}
	})
}

func TestCursorSeeksAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		e := s.newEpoch(t)
		c := e.Cursor(0)
		for range rapid.IntRange(1, 8).Draw(t, "seeks") {
			p := rapid.IntRange(0, len(s.g)).Draw(t, "position")
			n := rapid.IntRange(0, len(s.g)-p).Draw(t, "records")
			c.Seek(uint64(p))
			require.Equal(t, s.g[p:p+n], walk(t, c, n, 64))
			require.Equal(t, s.g[p:p+n], walk(t, e.Cursor(uint64(p)), n, 64))
		}
	})
}

func TestViewsEqualNaiveOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		done, left := s.drawDone(t)
		deal := s.drawDeal(t)
		v, err := NewView(s.newEpoch(t), done, deal)
		require.NoError(t, err)
		tailed := naiveTail(left, s.g, deal)
		require.Equal(t, uint64(len(left)), v.Remaining())
		require.Equal(t, uint64(len(tailed)), v.Dealt())
		require.Equal(t, deal, v.Deal())
		for w, places := range naiveDeal(uint64(len(tailed)), deal.Workers, deal.Batch, deal.Dealing) {
			checkWorker(t, v, uint64(w), places, tailed)
		}
		var swept []uint64
		v.Sweep(0, v.Dealt(), func(j uint64, records []uint64) bool {
			require.Equal(t, uint64(len(swept)), j)
			require.NotEmpty(t, records)
			swept = append(swept, records...)
			return true
		})
		require.True(t, slices.Equal(tailed, swept), "%v instead of %v", swept, tailed)
	})
}

// checkWorker checks worker w, which is assigned the given positions of tailed.
func checkWorker(t *rapid.T, v *View, w uint64, places, tailed []uint64) {
	require.Equal(t, uint64(len(places)), v.Count(w))
	own := uint64(0)
	want := make([]uint64, 0, len(places))
	for k, j := range places {
		if j < v.Remaining() {
			own++
		}
		want = append(want, tailed[j])
		ow, ok := v.Owner(j)
		require.Equal(t, [2]uint64{w, uint64(k)}, [2]uint64{ow, ok})
	}
	require.Equal(t, own, v.Own(w))
	k := 0
	if len(want) > 0 && rapid.Bool().Draw(t, "from the middle") {
		k = rapid.IntRange(0, len(want)).Draw(t, "k")
	}
	got := make([]uint64, len(want)+3)
	n := v.Records(w, uint64(k), got)
	require.True(t, slices.Equal(want[k:], got[:n]), "worker %d from %d: %v instead of %v", w, k, got[:n], want[k:])
	require.Zero(t, v.Records(w, uint64(len(want)), got))
}

func TestSimplifyKeepsRemainder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		done, left := s.drawDone(t)
		simple, err := Simplify(uint64(len(s.g)), s.order, done)
		require.NoError(t, err)
		again := s.g
		for _, d := range simple {
			require.NotZero(t, d.Taken(), "an entry of zeros")
			require.NotEmpty(t, d.Dealing)
			before := again
			again = naiveResume(again, d)
			if n := d.Taken(); slices.Equal(before[n:], again) {
				require.Equal(t, First(n, s.order), d, "a prefix that is not written as one")
			}
		}
		require.True(t, slices.Equal(left, again))
		for i := 1; i < len(simple); i++ {
			require.False(t, len(simple[i].Consumed) == 1 && len(simple[i-1].Consumed) == 1, "two prefixes in a row")
		}
		twice, err := Simplify(uint64(len(s.g)), s.order, simple)
		require.NoError(t, err)
		require.Equal(t, simple, twice)
	})
}

func TestRoundRobinOfWorkersReproducesG(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		deal := spec.Assignment{
			Workers: rapid.Uint64Range(1, 100).Draw(t, "workers"), Batch: s.order.Batch,
			Dealing: spec.DealInterleaved, Tail: spec.TailKeep,
		}
		if s.order.Groups == 1 {
			deal.Batch = rapid.Uint64Range(1, 20).Draw(t, "batch")
		}
		v, err := NewView(s.newEpoch(t), nil, deal)
		require.NoError(t, err)
		var got []uint64
		batch := make([]uint64, min(deal.Batch, uint64(len(s.g))))
		next := make([]uint64, deal.Workers)
		for w := uint64(0); len(got) < len(s.g); w = (w + 1) % deal.Workers {
			n := v.Records(w, next[w], batch)
			next[w] += uint64(n)
			got = append(got, batch[:n]...)
		}
		require.Equal(t, s.g, got)
	})
}

// A mount that is read for a while and resumed, repeatedly, by any number of workers under any
// deal, delivers every record exactly once, and each entry records exactly what the workers got.
func TestRepeatedResumesDeliverEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		e := s.newEpoch(t)
		var done []Done
		seen := make([]int, len(s.g))
		for range rapid.IntRange(1, 5).Draw(t, "mounts") {
			deal := s.drawDeal(t)
			v, err := NewView(e, done, deal)
			require.NoError(t, err)
			consumed := make([]uint64, deal.Workers)
			for w := range consumed {
				consumed[w] = rapid.Uint64Range(0, v.Own(uint64(w))).Draw(t, "consumed")
				got := make([]uint64, consumed[w])
				require.Equal(t, len(got), v.Records(uint64(w), 0, got))
				for _, record := range got {
					seen[record]++
				}
			}
			done, err = Simplify(e.Len(), s.order, append(done, Given(s.order, v.Remaining(), deal, consumed)))
			require.NoError(t, err)
		}
		v, err := NewView(e, done, spec.Assignment{Workers: 1, Batch: s.order.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
		require.NoError(t, err)
		v.Sweep(0, v.Dealt(), func(_ uint64, records []uint64) bool {
			for _, record := range records {
				seen[record]++
			}
			return true
		})
		for record, times := range seen {
			require.Equal(t, 1, times, "record %d", record)
		}
	})
}

// Pages of views begin at few positions; a walk begins anywhere.
func TestRemainderIsFoundFromAnywhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		done, left := s.drawDone(t)
		var levels []level
		remaining := uint64(len(s.g))
		for _, d := range done { // not simplified: every kind of entry
			levels = append(levels, newLevel(remaining, d))
			remaining = levels[len(levels)-1].left
		}
		r := newRest(s.newEpoch(t), levels)
		for range min(50, len(left)) {
			j := rapid.IntRange(0, len(left)-1).Draw(t, "j")
			r.seek(uint64(j))
			got := make([]uint64, rapid.IntRange(0, min(40, len(left)-j)).Draw(t, "records"))
			r.fill(got)
			require.True(t, slices.Equal(left[j:][:len(got)], got), "from %d: %v instead of %v", j, got, left[j:][:len(got)])
		}
	})
}
