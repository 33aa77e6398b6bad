package rows

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// benches are batches as a decoder makes them, and their presenters.
func benches() map[string]struct {
	batch     *Batch
	presenter Presenter
} {
	r := rand.New(rand.NewPCG(1, 2))
	const rows = 64
	column := func(value func(i int) any) []any {
		values := make([]any, rows)
		for i := range values {
			values[i] = value(i)
		}
		return values
	}
	text := strings.Repeat(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 4)+"\"It did\", he said.\n", 13)
	other := strings.Repeat("Привет, мир. 你好,世界。 ", 60)
	words := Schema{{"text", tString}, {"id", tString}, {"url", nullable(tString)}, {"score", tDouble}, {"tokens", tInt64}}
	texts := func(text string) *Batch {
		return table(words, column(func(int) any { return text }), column(func(i int) any { return fmt.Sprintf("<urn:uuid:%032d>", i) }),
			column(func(i int) any { return fmt.Sprintf("https://example.com/%d", i) }), column(func(int) any { return r.Float64() }), column(func(int) any { return r.Int64N(5000) }))
	}
	numbers := Schema{{"a", tInt64}, {"b", tDouble}, {"c", tFloat}, {"d", nullable(tInt32)}, {"ts", tMicros}, {"v", listOf(tFloat)}}
	number := table(numbers, column(func(int) any { return r.Int64() }), column(func(int) any { return r.NormFloat64() }),
		column(func(int) any { return float64(float32(r.NormFloat64())) }), column(func(int) any { return int64(r.Int32()) }),
		column(func(int) any { return r.Int64N(2e15) }), column(func(int) any {
			list := make([]any, 16)
			for i := range list {
				list[i] = float64(float32(r.NormFloat64()))
			}
			return list
		}))
	ids := Schema{{"input_ids", listOf(tInt32)}}
	tokens := table(ids, column(func(int) any {
		list := make([]any, 1024)
		for i := range list {
			list[i] = int64(r.Int32N(100000))
		}
		return list
	}))
	images := Schema{{"image", tImage}, {"label", tInt64}}
	image := "\xff\xd8\xff" + string(bytes.Repeat([]byte{1}, 110<<10))
	pictures := table(images, column(func(i int) any { return []any{image, fmt.Sprintf("n%05d.JPEG", i)} }), column(func(i int) any { return int64(i) }))
	columnsOf := func(s Schema) []Column {
		columns, err := Resolve(s, nil)
		if err != nil {
			panic(err)
		}
		return columns
	}
	tar, err := NewTar(columnsOf(images), "data/"+strings.Repeat("long", 30)+".parquet", 0)
	if err != nil {
		panic(err)
	}
	npy, err := NewNPY(columnsOf(numbers[:1]), nil, 0)
	if err != nil {
		panic(err)
	}
	lists, err := NewNPY(columnsOf(ids), nil, 0)
	if err != nil {
		panic(err)
	}
	return map[string]struct {
		batch     *Batch
		presenter Presenter
	}{
		"text":        {texts(text), NewJSONL(columnsOf(words), 1<<30)},
		"text=utf8":   {texts(other), NewJSONL(columnsOf(words), 1<<30)},
		"numbers":     {number, NewJSONL(columnsOf(numbers), 1<<30)},
		"tokens=json": {tokens, NewJSONL(columnsOf(ids), 1<<30)},
		"tokens=npy":  {tokens, lists},
		"images":      {pictures, tar},
		"int64=npy":   {number, npy},
	}
}

// Presenting a row allocates nothing.
func TestNoAllocations(t *testing.T) {
	for name, c := range benches() {
		dst, err := c.presenter.Append(nil, c.batch, 0, 0)
		require.NoError(t, err)
		_, err = c.presenter.Size(c.batch, 0, 0)
		require.NoError(t, err)
		require.Zero(t, testing.AllocsPerRun(10, func() { dst, _ = c.presenter.Append(dst[:0], c.batch, 0, 0) }), name)
		require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = c.presenter.Size(c.batch, 0, 0) }), name)
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, c := range benches() {
		b.Run("rows="+name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			n, presented := 0, 0
			for b.Loop() {
				var err error
				if dst, err = c.presenter.Append(dst[:0], c.batch, n%c.batch.Rows, int64(n)); err != nil {
					b.Fatal(err)
				}
				presented += len(dst)
				n++
			}
			b.SetBytes(int64(presented / n))
		})
	}
}

func BenchmarkSize(b *testing.B) {
	for name, c := range benches() {
		b.Run("rows="+name, func(b *testing.B) {
			b.ReportAllocs()
			n, sized := 0, int64(0)
			for b.Loop() {
				size, err := c.presenter.Size(c.batch, n%c.batch.Rows, int64(n))
				if err != nil {
					b.Fatal(err)
				}
				sized += size
				n++
			}
			b.SetBytes(sized / int64(n))
		})
	}
}
