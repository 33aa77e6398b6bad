package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Every promise about the network refers to a row that is measured, together with the rows that it
// is compared with or computed from.
func TestEveryNetworkPromiseHasMeasuredRows(t *testing.T) {
	n := &network{config: Config{Rows: rowsOf(Promises(), SectionNetwork)}}
	var ids []string
	for _, r := range n.rows() {
		ids = append(ids, r.id)
	}
	for _, p := range Promises() {
		if p.Section == SectionNetwork {
			require.Contains(t, ids, p.Row, p.What)
		}
	}
	for _, r := range n.rows() {
		if r.against != "" {
			require.Contains(t, ids, r.against)
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
		ids = append(ids, r.id)
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
		switch r.id {
		case rowNetCPU + "256k", rowNetMemory, rowCacheAll, rowCached, rowSealed, rowCacheHalf, rowNetLoop + "8m":
			_, err := r.measure(t.Context())
			require.ErrorIs(t, err, errNotMeasured, r.id)
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
