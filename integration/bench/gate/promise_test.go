package gate

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestVerdicts(t *testing.T) {
	rows := []bench.Row{
		{ID: "mount-1", Ratio: &bench.Spread{Median: 0.5, Min: 0.4, Max: 0.9}, Against: "ceiling-1"},
		{ID: bench.RowMountCold, Against: bench.RowFioCold, GiBPerSecond: &bench.Spread{Median: 1, Min: 1, Max: 1}},
		{ID: bench.RowFioCold, Name: "fio", NotMeasured: "not measured: fio is not installed"},
	}
	for _, c := range []struct {
		name    string
		promise Promise
		verdict string
		why     string
	}{
		{"reached", Promise{Row: "mount-1", Figure: FigureRatio, AtLeast: 0.5}, VerdictOK, ""},
		{"short", Promise{Row: "mount-1", Figure: FigureRatio, AtLeast: 0.51}, VerdictShort, ""},
		{"too much", Promise{Row: "mount-1", Figure: FigureRatio, AtMost: 0.49}, VerdictShort, ""},
		{"no limit was measured", Promise{Row: bench.RowMountCold, Figure: FigureRatio, AtLeast: 0.1}, VerdictNotMeasured, "fio is not installed"},
		{"no such row", Promise{Row: bench.RowMountWhole, Figure: FigureRatio, AtLeast: 0.1}, VerdictNotMeasured, "does not apply"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.promise.judge(rows)
			require.Equal(t, c.verdict, got.Verdict)
			require.Contains(t, got.Why, c.why)
		})
	}
}

// TestEveryPromiseHasMeasuredRow guards against typing errors, which would make promises
// that can never fall short.
func TestEveryPromiseHasMeasuredRow(t *testing.T) {
	for sections, measured := range map[string]*bench.Scope{
		"tar jsonl npy": {Shards: []string{"a.tar"}}, "zst gz lc0": {Compressed: true, Codec: "gzip", Games: true, Shards: []string{"a.jsonl.gz"}}, "files": {Files: true, Shards: []string{"a"}},
	} {
		s := &bench.Session{Scope: measured}
		ids := map[string]bool{}
		for _, r := range s.Rows() {
			ids[r.ID] = true
		}
		for _, p := range Promises() {
			require.True(t, (p.AtLeast > 0) != (p.AtMost > 0), p.What)
			require.False(t, math.IsNaN(p.AtLeast))
			if !slices.Contains(strings.Fields(sections), string(p.Section)) {
				continue
			}
			require.True(t, ids[p.Row], "%s: no row %s", p.What, p.Row)
			require.Contains(t, rowsOf(Promises(), p.Section), p.Row)
		}
		for _, r := range s.Rows() {
			if r.Against != "" {
				require.True(t, ids[r.Against], r.Against)
			}
		}
	}
}

// Every promise about the network refers to a row that is measured, together with the rows that it
// is compared with or computed from.
func TestEveryNetworkPromiseHasMeasuredRows(t *testing.T) {
	n := &network{Cats: bench.Cats{Config: bench.Config{Rows: rowsOf(Promises(), SectionNetwork)}}}
	var ids []string
	for _, r := range n.rows() {
		ids = append(ids, r.ID)
	}
	for _, p := range Promises() {
		if p.Section == SectionNetwork {
			require.Contains(t, ids, p.Row, p.What)
		}
	}
	for _, r := range n.rows() {
		if r.Against != "" {
			require.Contains(t, ids, r.Against)
		}
	}
	for _, size := range chunkSizes {
		require.Less(t, slices.Index(ids, rowNetCat+size.name), slices.Index(ids, rowNetLoop+size.name), "the loop asks for what cat asked for")
		require.Less(t, slices.Index(ids, rowNetLoop+size.name), slices.Index(ids, rowNetCPU+size.name))
	}
}

func TestEveryGrowthPromiseHasMeasuredRow(t *testing.T) {
	var ids, promised []string
	for _, r := range (&growing{}).rows() {
		ids = append(ids, r.ID)
	}
	for _, p := range Promises() {
		if p.Section == SectionGrowing {
			promised = append(promised, p.Row)
		}
	}
	require.ElementsMatch(t, ids, promised)
}

// A row computed from others is not measured if they are not: a value of 0 would keep any promise.
func TestRowsComputedFromMissingRowsAreNotMeasured(t *testing.T) {
	n := &network{}
	for _, r := range n.rows() {
		switch r.ID {
		case rowNetCPU + "256k", rowNetMemory, rowCacheAll, rowCached, rowSealed, rowCacheHalf, rowNetLoop + "8m":
			_, err := r.Measure(t.Context())
			require.ErrorIs(t, err, bench.ErrNotMeasured, r.ID)
		}
	}
}

// What is subtracted is what the linker leaves out of a release.
func TestProgramWithoutSymbolsHasSizeOfRelease(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n"), 0o600))
	built := func(name, flags string) string {
		path := filepath.Join(dir, name)
		said, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", flags, "-o", path, source).CombinedOutput()
		require.NoError(t, err, "%s", said)
		return path
	}
	release, err := os.Stat(built("release", "-s -w"))
	require.NoError(t, err)
	for name, flags := range map[string]string{"usual": "", "stripped": "-s -w"} {
		bytes, err := programBytes(built(name, flags))
		require.NoError(t, err)
		require.InDelta(t, release.Size(), bytes, 0.01*float64(release.Size()), name)
	}
	_, err = programBytes(source)
	require.Error(t, err)
}

// The network part opens datasets with a spec without a cache, which is valid.
func TestNetworkPartOpensWithoutCache(t *testing.T) {
	s := withoutCache(spec.Default())
	s.Dataset = "http://127.0.0.1/a.tar"
	require.True(t, s.Cache.Off)
	require.NoError(t, s.Validate())
}
