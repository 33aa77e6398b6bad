package parquet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// LSIOFS_PARQUET_TESTING is a copy of Apache's repository parquet-testing.
func TestCorpus(t *testing.T) {
	dir := os.Getenv("LSIOFS_PARQUET_TESTING")
	if dir == "" {
		t.Skip("LSIOFS_PARQUET_TESTING is not set")
	}
	paths, _ := filepath.Glob(filepath.Join(dir, "*", "*.parquet*"))
	for _, path := range paths {
		if strings.HasSuffix(path, ".json") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out, err := lines(data, "", Options{})
		if err != nil {
			t.Logf("%-50s %d bytes, %v", filepath.Base(path), len(out), err)
		} else {
			t.Logf("%-50s %d bytes, %d lines", filepath.Base(path), len(out), strings.Count(string(out), "\n"))
		}
		if to := os.Getenv("LSIOFS_PARQUET_LINES"); to != "" && err == nil {
			os.WriteFile(filepath.Join(to, filepath.Base(path)+".jsonl"), out, 0o644)
		}
	}
}
