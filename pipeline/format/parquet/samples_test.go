package parquet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWriteSamples writes the files of ../tables/testdata to the directory LSIOFS_PARQUET_WRITE.
func TestWriteSamples(t *testing.T) {
	dir := os.Getenv("LSIOFS_PARQUET_WRITE")
	if dir == "" {
		t.Skip("LSIOFS_PARQUET_WRITE is not set: the files of package tables' tests are there")
	}
	draw := rand.New(rand.NewPCG(2, 9))
	text := &field{fields: []*field{
		{name: "n", phys: physInt64}, {name: "text", phys: physBytes, optional: true},
		{name: "tags", optional: true, list: &field{name: "element", phys: physBytes, optional: true}}, {name: "x", phys: physDouble},
	}}
	rows := make([]any, 2400)
	for i := range rows {
		var words, tags []string
		for range draw.IntN(12) {
			words = append(words, strings.Repeat("abc"[draw.IntN(3):][:1], 1+draw.IntN(9)))
		}
		for range draw.IntN(4) {
			tags = append(tags, string(rune('a'+draw.IntN(26))))
		}
		list := make([]any, len(tags))
		for k := range tags {
			list[k] = tags[k]
		}
		rows[i] = []any{int64(i), strings.Join(words, " "), list, float64(draw.IntN(100)) / 2}
	}
	tokens := &field{fields: []*field{{name: "ids", optional: true, list: &field{name: "element", phys: physInt32}}}}
	lists := make([]any, 600)
	next := int32(0)
	for i := range lists {
		if draw.IntN(10) == 0 {
			lists[i] = []any{nil}
			continue
		}
		list := make([]any, draw.IntN(40))
		for k := range list {
			list[k] = next
			next++
		}
		lists[i] = []any{list}
	}
	media := &field{fields: []*field{{name: "image", phys: physFixed}, {name: "cls", phys: physInt32}}}
	images := make([]any, 500)
	for i := range images {
		images[i] = []any{fmt.Sprintf("%05d", i), int32(i % 7)}
	}
	cut := func(all []any, sizes ...int) (groups [][]any) {
		for _, n := range sizes {
			groups, all = append(groups, all[:n]), all[n:]
		}
		return append(groups, all)
	}
	pageBytes := 2 << 10
	write := func(name string, c codec, root *field, groups [][]any) {
		w := &fileWriter{draw: draw, codec: c, pageBytes: pageBytes, crc: true}
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), w.write(root, groups), 0o644))
	}
	write("text/a.parquet", codecSnappy, text, cut(rows[:1500], 300, 1, 700, 0))
	write("text/b.parquet", codecZstd, text, cut(rows[1500:]))
	write("rewritten/a.parquet", codecZstd, text, cut(rows[:1500]))
	write("rewritten/b.parquet", uncompressed, text, cut(rows[1500:], 100, 100, 333))
	write("tokens/t.parquet", codecSnappy, tokens, cut(lists, 100, 250, 1))
	write("images/i.parquet", codecSnappy, media, cut(images, 40, 200))
	// Compressible, so that row groups of a few KB of file have several points.
	long := make([]any, 3000)
	for i := range long {
		long[i] = []any{int64(i), strings.Repeat(string(rune('a'+i%26)), 1500+draw.IntN(1000)), []any{"t"}, 0.5}
	}
	pageBytes = 100 << 10
	write("long/l.parquet", codecZstd, text, cut(long, 1000))
	var b strings.Builder
	for _, r := range rows {
		text.json(&b, r)
		b.WriteByte('\n')
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text.jsonl"), []byte(b.String()), 0o644))
}
