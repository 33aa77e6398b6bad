package read_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// With a real dataset, catalog, order and storage every line is read once.
func TestLinesOfRealDatasetAreReadOnceEach(t *testing.T) {
	for _, ending := range []string{".jsonl", ".jsonl.gz"} {
		t.Run(ending, func(t *testing.T) {
			dir := t.TempDir()
			want := map[string]int{}
			for shard := range 5 {
				writeLines(t, filepath.Join(dir, fmt.Sprint("part-", shard, ending)), shard, want)
			}
			o := spec.Default().Order
			o.SizeRecords, o.Lanes, o.ChunkBytes = 200, 3, 4<<10
			d := openReal(t, catalog.Config{Dataset: dir, Format: spec.Format{Name: "auto"}}, o, 2)
			f := d.fetcher(t, 4<<20)
			for w := range uint64(2) {
				require.NoError(t, d.lendFirst(f, w, d.view.Count(w), func(line []byte) { want[string(line)]-- }))
			}
			for line, n := range want {
				require.Zero(t, n, "%q", line)
			}
		})
	}
}

func writeLines(t *testing.T, path string, shard int, want map[string]int) {
	var b bytes.Buffer
	for i := range 700 {
		line := fmt.Sprintf("{\"shard\": %d, \"line\": %d, \"text\": %q}\n", shard, i, strings.Repeat("x", i%90))
		want[line]++
		if i == 699 {
			line = strings.TrimSuffix(line, "\n")
		}
		b.WriteString(line)
	}
	if strings.HasSuffix(path, ".gz") {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err := w.Write(b.Bytes())
		require.NoError(t, err)
		require.NoError(t, w.Close())
		b = z
	}
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
}
