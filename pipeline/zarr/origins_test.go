package zarr

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBisectionIsAPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dims := rapid.IntRange(0, 5).Draw(t, "dims")
		counts, strides, chunks := make([]int64, dims), make([]int64, dims), make([]int64, dims)
		for d := range dims {
			counts[d] = rapid.Int64Range(1, 12).Draw(t, "count")
			strides[d] = rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, MaxEdge/16)).Draw(t, "stride")
			chunks[d] = rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1, MaxEdge-1)).Draw(t, "chunk")
		}
		b, err := NewBisection(counts, strides, chunks)
		require.NoError(t, err)
		seen := make([]bool, b.Total())
		place := make([]int64, dims)
		for n := range min(b.Total(), 5000) {
			b.Position(place, n)
			require.Equal(t, n, b.Number(place))
			at := number64(place, counts)
			require.False(t, seen[at])
			seen[at] = true
		}
	})
}

func TestBisectionOfLargestGrids(t *testing.T) {
	for _, counts := range [][]int64{{math.MaxInt64 >> 15}, {1 << 21, 1 << 21, 1 << 20}, {1, 3, 1<<48 - 1, 5}} {
		ones := make([]int64, len(counts))
		for i := range ones {
			ones[i] = 1
		}
		b, err := NewBisection(counts, ones, ones)
		require.NoError(t, err)
		place := make([]int64, len(counts))
		for _, n := range []uint64{0, 1, b.Total() / 3, b.Total() - 1} {
			b.Position(place, n)
			require.Equal(t, n, b.Number(place))
			for d, i := range place {
				require.True(t, i >= 0 && i < counts[d])
			}
		}
	}
	_, err := NewBisection([]int64{1 << 40, 1 << 40}, []int64{1, 1}, []int64{1, 1})
	require.ErrorContains(t, err, "more than 2^63")
}

// TestRunsAreCompact checks the purpose of the order: 64 consecutive crops need few chunks.
func TestRunsAreCompact(t *testing.T) {
	axes := []Axis{{"t", 512, 16, 0, 512, 24, 1, 12, false}, {"y", 1024, 64, 0, 1024, 128, 1, 64, false}, {"x", 1024, 64, 0, 1024, 128, 1, 64, false}}
	o, err := NewOrigins(axes, false)
	require.NoError(t, err)
	chunks := map[[3]int64]bool{}
	origin := make([]int64, 3)
	for n := uint64(640); n < 704; n++ {
		o.Position(origin, n)
		o.Origin(origin, origin)
		c := Crop{Origin: origin, Count: []int64{24, 128, 128}, Step: []int64{1, 1, 1}}
		require.NoError(t, c.Parts([]int64{512, 1024, 1024}, []int64{16, 64, 64}, func(p *Part) error {
			chunks[[3]int64(p.Chunk)] = true
			return nil
		}))
	}
	require.Less(t, len(chunks), 200, "64 random crops have about 1300")
}

func TestCropsThatDoNotFit(t *testing.T) {
	good := Axis{Name: "time", Length: 100, Edge: 10, End: 100, Crop: 24, Step: 1, Stride: 12}
	for want, edit := range map[string]func(*Axis){
		"time: the region 0:101 is not inside 0:100": func(a *Axis) { a.End = 101 },
		"the region 7:3":              func(a *Axis) { a.Begin, a.End = 7, 3 },
		"the crop must be from 1":     func(a *Axis) { a.Crop = 0 },
		"the step must be from 1":     func(a *Axis) { a.Step = 0 },
		"the stride must be from 1":   func(a *Axis) { a.Stride = MaxEdge },
		"the chunk edge must be":      func(a *Axis) { a.Edge = 0 },
		"can't wrap around in a part": func(a *Axis) { a.Wrap, a.End = true, 50 },
		"don't fit into 100":          func(a *Axis) { a.Crop, a.Step = 1<<47, 1<<47 },
		"crops of 101 elements":       func(a *Axis) { a.Crop, a.Wrap = 101, true },
	} {
		a := good
		edit(&a)
		_, err := NewOrigins([]Axis{a}, false)
		require.ErrorContains(t, err, want)
	}
	a := good
	a.Crop = 101
	o, err := NewOrigins([]Axis{a}, true)
	require.NoError(t, err)
	require.Zero(t, o.Total(), "a cube that is too short has no crops; others may have")
	_, err = NewOrigins([]Axis{{"a", 1 << 40, 1, 0, 1 << 40, 1, 1, 1, false}}, false)
	require.ErrorContains(t, err, "use a longer --stride, and --jitter")
	require.ErrorContains(t, CheckRow([]Axis{good}, []int64{77}), "time: a crop from 77 to 101")
	require.NoError(t, CheckRow([]Axis{good}, []int64{76}))
}

func TestPositionsAllocateNothing(t *testing.T) {
	o, err := NewOrigins([]Axis{{"t", 512, 16, 0, 512, 24, 1, 12, false}, {"y", 1024, 64, 0, 1024, 128, 1, 64, false}}, false)
	require.NoError(t, err)
	place := make([]int64, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		o.Position(place, 77)
		o.Ordinal(place)
	}))
}

func BenchmarkPosition(b *testing.B) {
	o, err := NewOrigins([]Axis{{"t", 5120, 16, 0, 5120, 24, 1, 1, false}, {"y", 1024, 64, 0, 1024, 128, 1, 8, false}, {"x", 1024, 64, 0, 1024, 128, 1, 8, false}}, false)
	require.NoError(b, err)
	place := make([]int64, 3)
	n := uint64(0)
	for b.Loop() {
		o.Position(place, n*0x9E3779B97F4A7C15%o.Total())
		n++
	}
}

func TestRows(t *testing.T) {
	sat := Field{"sat", plain(anInt, 'i', 2), []int64{24, 128, 128}}
	nwp := Field{"nwp", plain(aFloat, 'f', 4), []int64{3, 5}}
	hrv := Field{"hrv", plain(anInt, 'i', 2).withOrder(true), []int64{24, 128, 128}}
	height := Field{"height", plain(aFloat, 'f', 8), nil}

	r, err := RowOf([]Field{sat}, false)
	require.NoError(t, err)
	require.Equal(t, Row{"'<i2'", []int64{24, 128, 128}, 786432, []int64{0}, []int64{786432}}, r)

	r, err = RowOf([]Field{sat, hrv}, true)
	require.NoError(t, err)
	require.Equal(t, Row{"'<i2'", []int64{2, 24, 128, 128}, 1572864, []int64{0, 786432}, []int64{786432, 786432}}, r)

	r, err = RowOf([]Field{nwp, sat, height}, false)
	require.NoError(t, err)
	require.Equal(t, Row{
		"[('nwp', '<f4', (3, 5)), ('', '|V4'), ('sat', '<i2', (24, 128, 128)), ('height', '<f8'), ('', '|V56')]", nil,
		64 + 786432 + 64, []int64{0, 64, 64 + 786432}, []int64{60, 786432, 8},
	}, r)

	for _, c := range []struct {
		fields []Field
		stack  bool
		want   string
	}{
		{nil, false, "at least one"}, {[]Field{sat, nwp}, true, "only equal ones can be stacked: leave out --stack"}, {[]Field{sat, sat}, false, `"sat"`},
		{[]Field{sat, {"a'b", sat.Type, nil}}, false, "printable ASCII"}, {[]Field{{"x", sat.Type, []int64{1 << 30, 1 << 30}}}, false, "more than"},
	} {
		_, err := RowOf(c.fields, c.stack)
		require.ErrorContains(t, err, c.want)
	}
}
