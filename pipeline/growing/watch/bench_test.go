package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// BenchmarkCheckEverything measures the time per file of a look at everything: the first time, for
// files that an index knows, and again; and the memory per file.
func BenchmarkCheckEverything(b *testing.B) {
	const files = 100_000
	root := b.TempDir()
	for i := range files {
		require.NoError(b, os.WriteFile(filepath.Join(root, fmt.Sprintf("training.%d.gz", i)), nil, 0o600))
	}
	c := Config{
		Root: root, Match: func(string, bool) bool { return true }, Known: func(storage.Object) bool { return true },
		StatStable: func(storage.Object) {}, Gone: func(string) {},
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l, err := Open(context.Background(), c)
	require.NoError(b, err)
	defer func() { require.NoError(b, l.Close()) }()
	l.stop()
	<-l.done
	runtime.GC()
	runtime.ReadMemStats(&after)
	first := l.Status().Scan
	for b.Loop() {
		l.everything(context.Background(), l.root, time.Now())
	}
	b.ReportMetric(float64(first.Nanoseconds())/files, "ns/file-at-first")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/files, "ns/file")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/files, "B/file")
}
