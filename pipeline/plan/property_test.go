package plan

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn is a request of small objects, so that every byte can be checked.
type drawn struct {
	config  Config
	request Request
}

func drawRequest(t *rapid.T) drawn {
	var d drawn
	d.config = Config{
		MergeGapBytes: rapid.Int64Range(0, 12).Draw(t, "gap"),
		AlignBytes:    rapid.Int64Range(1, 5).Draw(t, "align"),
		MaxVectors:    rapid.IntRange(0, 6).Draw(t, "vectors"),
	}
	d.config.MaxReadBytes = d.config.AlignBytes * rapid.Int64Range(1, 12).Draw(t, "most")
	d.request.ObjectBytes = rapid.SliceOfN(rapid.Int64Range(0, 90), 1, 3).Draw(t, "objects")
	ranges := rapid.Custom(func(t *rapid.T) Range {
		r := Range{Object: rapid.IntRange(0, len(d.request.ObjectBytes)-1).Draw(t, "object")}
		size := d.request.ObjectBytes[r.Object]
		r.OffsetBytes = rapid.Int64Range(0, size).Draw(t, "offset")
		r.SizeBytes = min(rapid.Int64Range(0, 30).Draw(t, "size"), size-r.OffsetBytes)
		if rapid.Bool().Draw(t, "from the end") && r.OffsetBytes < size {
			r.OffsetBytes -= size
		}
		return r
	})
	d.request.Want = rapid.SliceOfN(ranges, 0, 14).Draw(t, "want")
	d.request.Have = rapid.SliceOfN(ranges, 0, 4).Draw(t, "have")
	return d
}

// bytesOf marks the bytes of the objects that ranges cover.
func bytesOf(objects []int64, ranges []Range) [][]bool {
	m := make([][]bool, len(objects))
	for i, n := range objects {
		m[i] = make([]bool, n)
	}
	for _, r := range ranges {
		for k := range r.SizeBytes {
			at := r.OffsetBytes + k
			if r.OffsetBytes < 0 {
				at += objects[r.Object]
			}
			m[r.Object][at] = true
		}
	}
	return m
}

// content returns the byte of an object at an offset: nearly all differ from their neighbours.
func content(object int, at int64) byte { return byte(7 + object*101 + int(at)*3) }

func TestReadsAreCorrectForAnyRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawRequest(t)
		plan, err := newPlannerRapid(t, d.config).Plan(d.request)
		require.NoError(t, err)
		want, have := bytesOf(d.request.ObjectBytes, d.request.Want), bytesOf(d.request.ObjectBytes, d.request.Have)
		read := bytesOf(d.request.ObjectBytes, nil)
		needed := func(object int, at int64) bool { return want[object][at] && !have[object][at] }
		totals := Totals{Wanted: len(d.request.Want), Reads: len(plan.Reads)}
		for i, r := range plan.Reads {
			end := r.OffsetBytes + r.SizeBytes
			require.Positive(t, r.SizeBytes)
			require.LessOrEqual(t, r.SizeBytes, d.config.MaxReadBytes)
			require.True(t, needed(r.Object, r.OffsetBytes) && needed(r.Object, end-1), "read %d begins or ends in a gap", i)
			if i > 0 {
				last := plan.Reads[i-1]
				require.True(t, last.Object < r.Object || last.Object == r.Object && last.OffsetBytes+last.SizeBytes <= r.OffsetBytes, "read %d is not behind the one before", i)
			}
			gap := int64(0)
			for at := r.OffsetBytes; at < end; at++ {
				read[r.Object][at] = true
				if gap++; needed(r.Object, at) {
					gap = 0
				} else {
					totals.GapBytes++
				}
				require.LessOrEqual(t, gap, d.config.MergeGapBytes)
			}
			totals.ReadBytes += r.SizeBytes
		}
		for object := range want {
			for at := range want[object] {
				if needed(object, int64(at)) {
					totals.UsefulBytes++
					require.True(t, read[object][at], "byte %d of object %d is wanted and not read", at, object)
				}
			}
		}
		for _, w := range d.request.Want {
			totals.WantedBytes += w.SizeBytes
			for k := range w.SizeBytes {
				if have[w.Object][begin(d.request, w)+k] {
					totals.CachedBytes++
				}
			}
		}
		require.Equal(t, totals, plan.Totals)
	})
}

func begin(r Request, w Range) int64 {
	if w.OffsetBytes < 0 {
		return w.OffsetBytes + r.ObjectBytes[w.Object]
	}
	return w.OffsetBytes
}

func newPlannerRapid(t *rapid.T, c Config) *Planner {
	p, err := New(c)
	require.NoError(t, err)
	return p
}

// TestMergedReadsAreMinimal checks that merging makes the number of reads minimal.
func TestMergedReadsAreMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawRequest(t)
		d.config.MaxVectors = 0
		plan, err := newPlannerRapid(t, d.config).Plan(d.request)
		require.NoError(t, err)
		for i := 1; i < len(plan.Reads); i++ {
			a, b := plan.Reads[i-1], plan.Reads[i]
			gap := b.OffsetBytes - a.OffsetBytes - a.SizeBytes
			if a.Object != b.Object || gap > d.config.MergeGapBytes || continues(plan, i) {
				continue
			}
			require.Greater(t, firstRunEnd(plan, i)-a.OffsetBytes, d.config.MaxReadBytes, "reads %d and %d", i-1, i)
		}
	})
}

// continues reports whether a wanted range is cut between a read and the one before.
func continues(p *Plan, read int) bool {
	for _, part := range p.Parts(read) {
		for _, source := range p.Sources(part.Want) {
			if source.Read == read-1 && source.WantOffset+source.SizeBytes == part.WantOffset && p.Reads[read-1].OffsetBytes+p.Reads[read-1].SizeBytes == p.Reads[read].OffsetBytes && part.ReadOffset == 0 {
				return true
			}
		}
	}
	return false
}

// firstRunEnd returns the end of the overlapping run that begins with a read's first range.
func firstRunEnd(p *Plan, read int) int64 {
	end := p.Reads[read].OffsetBytes
	for i := read; i < len(p.Reads) && p.Reads[i].Object == p.Reads[read].Object; i++ {
		for _, part := range p.Parts(i) {
			begin := p.Reads[i].OffsetBytes + part.ReadOffset
			if begin < end || i == read && part.ReadOffset == 0 || i > read && begin == end && continues(p, i) {
				end = max(end, begin+part.SizeBytes)
			}
		}
	}
	return end
}

// TestBytesReachTheirDestination executes a plan in both ways, with the reads in any order, and
// checks every range as soon as it is reported complete.
func TestBytesReachTheirDestination(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawRequest(t)
		plan, err := newPlannerRapid(t, d.config).Plan(d.request)
		require.NoError(t, err)
		have := bytesOf(d.request.ObjectBytes, d.request.Have)
		order := rapid.Permutation(indices(len(plan.Reads))).Draw(t, "order")

		byParts, byVectors := buffers(d.request, have), buffers(d.request, have)
		come := make([]bool, len(plan.Reads))
		complete := make([]bool, len(d.request.Want))
		var g Progress
		check := func(list []int) {
			for _, w := range list {
				require.False(t, complete[w], "range %d is told twice", w)
				complete[w] = true
				require.Equal(t, wantedBytes(d.request, w), byParts[w], "range %d", w)
				require.Equal(t, wantedBytes(d.request, w), byVectors[w], "range %d by vectors", w)
			}
			for w := range complete {
				ready := !slices.ContainsFunc(plan.Sources(w), func(p Part) bool { return !come[p.Read] })
				require.Equal(t, ready, complete[w], "range %d is complete when its reads have come", w)
			}
		}
		check(g.Start(plan, nil))
		for _, i := range order {
			r := plan.Reads[i]
			buf := make([]byte, r.SizeBytes)
			for k := range buf {
				buf[k] = content(r.Object, r.OffsetBytes+int64(k))
			}
			for _, p := range plan.Parts(i) {
				copy(byParts[p.Want][p.WantOffset:][:p.SizeBytes], buf[p.ReadOffset:][:p.SizeBytes])
			}
			carryOut(t, plan, i, buf, byVectors, d.config.MaxVectors)
			come[i] = true
			check(g.Done(i, nil))
		}
		require.NotContains(t, complete, false)
	})
}

// carryOut does the work of a readv and of the copies after it.
func carryOut(t *rapid.T, plan *Plan, read int, buf []byte, to [][]byte, most int) {
	vectors := plan.Vectors(read, nil)
	rest := buf
	for _, v := range vectors {
		require.Positive(t, v.SizeBytes)
		if v.Want >= 0 {
			copy(to[v.Want][v.WantOffset:][:v.SizeBytes], rest)
		}
		rest = rest[v.SizeBytes:]
	}
	require.Empty(t, rest, "vectors are all of the read")
	copies := plan.Copies(read, vectors, nil)
	for _, c := range copies {
		require.NotEqual(t, c.From, c.To)
		copy(to[c.To][c.ToOffset:][:c.SizeBytes], to[c.From][c.FromOffset:][:c.SizeBytes])
	}
	if most > 0 && len(copies) == 0 {
		require.LessOrEqual(t, len(vectors), max(most, 1))
	}
}

// buffers returns one buffer per range: available bytes are set, all others are wrong at first.
func buffers(r Request, have [][]bool) [][]byte {
	all := make([][]byte, len(r.Want))
	for i, w := range r.Want {
		all[i] = make([]byte, w.SizeBytes)
		for k := range w.SizeBytes {
			at := begin(r, w) + k
			all[i][k] = ^content(w.Object, at)
			if have[w.Object][at] {
				all[i][k] = content(w.Object, at)
			}
		}
	}
	return all
}

func wantedBytes(r Request, want int) []byte {
	w := r.Want[want]
	b := make([]byte, w.SizeBytes)
	for k := range b {
		b[k] = content(w.Object, begin(r, w)+int64(k))
	}
	return b
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// A range that overlaps no other and is not larger than a read comes from one read.
func TestRangesAreNotSplitUnnecessarily(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawRequest(t)
		d.request.Have = nil
		plan, err := newPlannerRapid(t, d.config).Plan(d.request)
		require.NoError(t, err)
		for w, r := range d.request.Want {
			others := bytesOf(d.request.ObjectBytes, slices.Delete(slices.Clone(d.request.Want), w, w+1))
			alone := r.SizeBytes > 0 && r.SizeBytes <= d.config.MaxReadBytes
			for k := range r.SizeBytes {
				alone = alone && !others[r.Object][begin(d.request, r)+k]
			}
			if alone {
				require.Len(t, plan.Sources(w), 1)
			}
		}
	})
}

// A planner returns the same plan as a new one, whatever it planned before.
func TestPlannersForgetEarlierPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := drawRequest(t), drawRequest(t)
		used := newPlannerRapid(t, second.config)
		_, err := used.Plan(first.request)
		require.NoError(t, err)
		got, err := used.Plan(second.request)
		require.NoError(t, err)
		want, err := newPlannerRapid(t, second.config).Plan(second.request)
		require.NoError(t, err)
		require.Equal(t, len(want.Reads), len(got.Reads))
		require.True(t, slices.Equal(want.Reads, got.Reads))
		require.Equal(t, want.Totals, got.Totals)
		require.True(t, slices.Equal(want.byRead, got.byRead) && slices.Equal(want.byWant, got.byWant))
	})
}
