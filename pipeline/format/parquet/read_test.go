package parquet

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

var drawnPhysical = []physical{physBool, physInt32, physInt64, physFloat, physDouble, physBytes, physFixed}

// drawField draws a field with at most depth levels below it.
func drawField(draw *rand.Rand, name string, depth int) *field {
	f := &field{name: name, optional: draw.IntN(2) == 0}
	switch k := draw.IntN(4); {
	case depth > 0 && k == 0:
		f.list = drawField(draw, "element", depth-1)
	case depth > 0 && k == 1:
		for i := range 1 + draw.IntN(3) {
			f.fields = append(f.fields, drawField(draw, fmt.Sprintf("f%d", i), depth-1))
		}
	default:
		f.phys = drawnPhysical[draw.IntN(len(drawnPhysical))]
	}
	return f
}

func (f *field) draw(draw *rand.Rand) any {
	if f.optional && draw.IntN(4) == 0 {
		return nil
	}
	switch {
	case f.list != nil:
		items := make([]any, max(0, draw.IntN(7)-2))
		for i := range items {
			items[i] = f.list.draw(draw)
		}
		return items
	case f.fields != nil:
		items := make([]any, len(f.fields))
		for i, c := range f.fields {
			items[i] = c.draw(draw)
		}
		return items
	}
	n := draw.IntN(20)
	if draw.IntN(3) == 0 {
		n = int(draw.Int64())
	}
	switch f.phys {
	case physBool:
		return n&1 == 1
	case physInt32:
		return int32(n)
	case physInt64:
		return int64(n)
	case physFloat:
		return float32(n%1000) / 2
	case physDouble:
		return float64(n%1000) / 2
	}
	if f.phys == physFixed {
		return fmt.Sprintf("%05d", n&1023)
	}
	return strings.Repeat("ab", n&7) + fmt.Sprint(n%100)
}

func drawRows(draw *rand.Rand, root *field, n int) []any {
	rows := make([]any, n)
	for i := range rows {
		rows[i] = root.draw(draw)
	}
	return rows
}

// drawFile returns a file, and its rows as lines, by row group.
func drawFile(draw *rand.Rand) ([]byte, [][]string) {
	root := &field{}
	for i := range 1 + draw.IntN(4) {
		root.fields = append(root.fields, drawField(draw, fmt.Sprintf("c%d", i), draw.IntN(4)))
	}
	codecs := []codec{uncompressed, codecSnappy, codecGzip, codecBrotli, codecZstd, codecLZ4Raw, codecLZ4}
	w := &fileWriter{draw: draw, codec: codecs[draw.IntN(len(codecs))], pageMost: 1 + draw.IntN(60), encodings: draw.IntN(3) > 0}
	groups := make([][]any, draw.IntN(4))
	want := make([][]string, len(groups))
	for g := range groups {
		groups[g] = drawRows(draw, root, draw.IntN(60))
		for _, r := range groups[g] {
			var b strings.Builder
			root.json(&b, r)
			want[g] = append(want[g], b.String()+"\n")
		}
	}
	return w.write(root, groups), want
}

// Rows are the same from every row on, whether a point has the pages or only the row, and however
// much is read at a time.
func TestRowsFromEveryPoint(t *testing.T) {
	for seed := range uint64(120) {
		draw := rand.New(rand.NewPCG(seed, 29))
		data, want := drawFile(draw)
		s, err := openShard(data, "", Options{BlockBytes: 1 + draw.Int64N(300), MaxBytes: 1 << 20})
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, len(want), s.file.Groups())
		p := rows.NewJSONL(s.columns, 1<<30)
		read := func(g int, from Point, points *[]Point) []string {
			require.NoError(t, s.cursor.Open(g, from), "seed %d", seed)
			var got []string
			for {
				if points != nil {
					*points = append(*points, s.cursor.Point())
				}
				b, err := s.cursor.Next()
				if err == io.EOF {
					return got
				}
				require.NoError(t, err, "seed %d, group %d, row %d", seed, g, len(got))
				require.NoError(t, b.Check(s.columns), "seed %d", seed)
				for r := range b.Rows {
					line, err := p.Append(nil, b, r, 0)
					require.NoError(t, err, "seed %d", seed)
					got = append(got, string(line))
				}
			}
		}
		for g, lines := range want {
			var points []Point
			require.Equal(t, lines, read(g, Point{}, &points), "seed %d, group %d", seed, g)
			for _, from := range points {
				parsed, err := ParsePoint(from.Append(nil))
				require.NoError(t, err)
				require.Equal(t, from, parsed)
				if from.Row < int64(len(lines)) {
					require.Equal(t, lines[from.Row:], read(g, from, nil), "seed %d, group %d, point %+v", seed, g, from)
				}
			}
			for row := range lines {
				require.Equal(t, lines[row:], read(g, Point{Row: int64(row)}, nil), "seed %d, group %d, row %d", seed, g, row)
			}
		}
		for g := range want { // ranges are all that is read
			ranges := s.file.mustSelect(t, s.columns).Ranges(g)
			c := s.file.mustSelect(t, s.columns).NewCursor(only{data, ranges}, Options{BlockBytes: 64})
			require.NoError(t, c.Open(g, Point{}))
			for err = nil; err == nil; _, err = c.Next() {
			}
			require.ErrorIs(t, err, io.EOF)
		}
	}
}

func (f *File) mustSelect(t *testing.T, columns []rows.Column) *Selection {
	s, err := f.Select(columns)
	require.NoError(t, err)
	return s
}

// only is a file of which some ranges are there.
type only struct {
	data   []byte
	ranges []Range
}

func (o only) ReadAt(p []byte, at int64) (int, error) {
	for _, r := range o.ranges {
		if at >= r.From && at+int64(len(p)) <= r.To {
			return copy(p, o.data[at:]), nil
		}
	}
	return 0, fmt.Errorf("bytes [%d, %d) are not in %v", at, at+int64(len(p)), o.ranges)
}

// A column is the same whatever columns are selected with it.
func TestSelectedColumns(t *testing.T) {
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 30))
		data, _ := drawFile(draw)
		all, err := openShard(data, "", Options{})
		require.NoError(t, err)
		for _, c := range all.columns {
			alone, err := lines(data, c.Name, Options{})
			require.NoError(t, err)
			twice, err := lines(data, "x="+c.Name+",*,y="+c.Name, Options{})
			require.NoError(t, err)
			a, b := bytes.Split(alone, []byte("\n")), bytes.Split(twice, []byte("\n"))
			require.Len(t, b, len(a))
			for i := range a[:len(a)-1] {
				value := bytes.TrimSuffix(bytes.TrimPrefix(a[i], []byte(`{"`+c.Name+`":`)), []byte("}"))
				require.True(t, bytes.HasPrefix(b[i], append([]byte(`{"x":`), value...)), "seed %d", seed)
				require.True(t, bytes.HasSuffix(b[i], append(append([]byte(`,"y":`), value...), '}')), "seed %d", seed)
			}
		}
	}
}

// Points of another shard, or of one that has changed, are errors or other rows, never a panic.
func TestPointsOfAnotherShard(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 32))
	data := threeGroups(codecSnappy)
	s, err := openShard(data, "", Options{})
	require.NoError(t, err)
	require.NoError(t, s.cursor.Open(1, Point{Row: 20}))
	state := s.cursor.Point().Append(nil)
	failed := 0
	for range 5000 {
		changed := bytes.Clone(state)
		for range 1 + draw.IntN(3) {
			changed[draw.IntN(len(changed))] = byte(draw.Uint32())
		}
		p, err := ParsePoint(changed)
		require.NoError(t, err)
		if err := s.each(1, p, func(*rows.Batch, int) error { return nil }); err != nil {
			mustBePlaced(t, "point", err, false)
			failed++
		}
	}
	require.Positive(t, failed)
	for n := range len(state) {
		p, err := ParsePoint(state[:n])
		if err == nil && n > 8 {
			require.ErrorContains(t, s.cursor.Open(1, p), "a point is not in its column chunk")
		}
	}
}
