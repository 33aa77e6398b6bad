package fetch_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// worker is one worker's sequence of a view.
type worker struct {
	view *order.View
	w    uint64
}

func (s worker) Len() uint64                        { return s.view.Count(s.w) }
func (s worker) Records(k uint64, dst []uint64) int { return s.view.Records(s.w, k, dst) }

// A real dataset, its catalog, an order and storage: every line comes once.
func TestLinesOfARealDatasetComeOnceEach(t *testing.T) {
	for _, ending := range []string{".jsonl", ".jsonl.gz"} {
		t.Run(ending, func(t *testing.T) {
			dir := t.TempDir()
			want := map[string]int{}
			for shard := range 5 {
				writeLines(t, filepath.Join(dir, fmt.Sprint("part-", shard, ending)), shard, want)
			}
			engine, err := uring.Open(uring.ModeAuto)
			require.NoError(t, err)
			defer engine.Close()
			c, s, err := catalog.Open(context.Background(), catalog.Config{
				Dataset: dir, Format: spec.Format{Name: "auto"}, IndexDir: t.TempDir(),
				OpenStorage: func(root, _ string) (storage.Storage, error) { return local.Open(root, engine) },
			})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()); require.NoError(t, c.Close()) }()

			o := spec.Default().Order
			o.SizeRecords, o.Lanes, o.ChunkBytes = 200, 3, 4<<10
			epoch, err := order.NewEpoch(o, 0, c.ChunkStarts(o.ChunkBytes, o.ChunkRecords), nil)
			require.NoError(t, err)
			view, err := order.NewView(epoch, nil, spec.Deal{Workers: 2, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
			require.NoError(t, err)
			f, err := fetch.New(c, s, fetch.Config{MemoryBytes: 4 << 20, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords})
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			for w := range uint64(2) {
				seq := worker{view, w}
				r := f.Open(seq)
				var l fetch.Loan
				for k := uint64(0); k < seq.Len(); {
					require.NoError(t, r.Lend(context.Background(), k, 50, &l))
					for _, line := range l.Records {
						want[string(line)]--
					}
					k += uint64(len(l.Records))
					l.Release()
				}
				r.Close()
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
