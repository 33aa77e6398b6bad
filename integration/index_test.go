package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Exit codes promised by the program's help.
const (
	exitUsage      = 2
	exitDataset    = 3
	exitMount      = 4
	exitCheckpoint = 5
	exitPipe       = 141
)

// summary is the output of `lsiofs index --json`.
type summary struct {
	Fingerprint string   `json:"fingerprint"`
	Shards      int      `json:"shards"`
	Reused      int      `json:"shards_reused"`
	Records     int      `json:"records"`
	Damaged     []string `json:"damaged"`
}

func index(t testing.TB, d dataset, more ...string) summary {
	t.Helper()
	args := append([]string{"index", d.dir, "--json"}, d.flags...)
	return summaryOf(t, toolOK(t, append(args, more...)...))
}

func summaryOf(t testing.TB, out []byte) summary {
	t.Helper()
	var s summary
	require.NoError(t, json.Unmarshal(out, &s), "%s", out)
	return s
}

func TestIndexIsReusedWhileShardsAreUnchanged(t *testing.T) {
	serve.Tier(t, serve.CI)
	allFormats(t, func(t *testing.T, d dataset) {
		dir := t.TempDir()
		first := index(t, d, "--index-dir", dir)
		require.Greater(t, first.Shards, 3)
		require.Zero(t, first.Reused)
		second := index(t, d, "--index-dir", dir)
		require.Equal(t, first.Shards, second.Reused)
		require.Equal(t, 0, index(t, d, "--index-dir", dir, "--rebuild").Reused)
		second.Reused = 0
		require.Equal(t, first, second)
	})
}

func TestOnlyChangedShardsAreIndexedAgain(t *testing.T) {
	d := plain(t, "jsonl", 5)
	dir := t.TempDir()
	before := index(t, d, "--index-dir", dir)
	appendTo(t, filepath.Join(d.dir, "part-0/shard-0002.jsonl"), "{\"new\": 1}\n")
	after := index(t, d, "--index-dir", dir)
	require.Equal(t, 4, after.Reused)
	require.Equal(t, before.Records+1, after.Records)
	require.NotEqual(t, before.Fingerprint, after.Fingerprint)

	require.NoError(t, os.Remove(filepath.Join(d.dir, "part-0/shard-0002.jsonl")))
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "part-0/shard-0009.jsonl"), []byte("{}\n{}\n"), 0o644))
	after = index(t, d, "--index-dir", dir)
	require.Equal(t, 4, after.Reused)
	require.Equal(t, newReference(t, d).fingerprint(), after.Fingerprint)
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.WriteString(text)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestIndexIsStoredInIndexDirectoryOfDatasetIfItExists(t *testing.T) {
	d := plain(t, "jsonl", 2)
	own := filepath.Join(d.dir, ".lsiofs")
	require.NoError(t, os.Mkdir(own, 0o755))
	index(t, d)
	require.NotEmpty(t, indexFiles(t, own))
	require.Equal(t, 2, index(t, d).Reused)
}

// indexFiles returns the files below an index directory that are not empty.
func indexFiles(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			files = append(files, path)
		}
		return nil
	}))
	return files
}

func TestDamagedIndexIsDetectedAndRebuilt(t *testing.T) {
	d := plain(t, "tar", 9)
	s := usual()
	want := newReference(t, d).data(s, 1)
	for name, spoil := range map[string]func(b []byte) []byte{
		"flipped bytes":  func(b []byte) []byte { return flipEvery(b, 97) },
		"a flipped head": func(b []byte) []byte { b[0] ^= 1; return b },
		"a flipped end":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"cut":            func(b []byte) []byte { return b[:len(b)/2] },
		"emptied":        func([]byte) []byte { return nil },
		"grown":          func(b []byte) []byte { return append(b, b...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			index(t, d, "--index-dir", dir)
			files := indexFiles(t, dir)
			require.NotEmpty(t, files)
			for _, file := range files {
				b, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, spoil(b), 0o600))
			}
			args := append([]string{"cat", d.dir, "--index-dir", dir, "--worker", "1"}, s.flags()...)
			requireSameBytes(t, want, toolOK(t, args...), "a stream by a damaged index")
			require.Equal(t, 9, index(t, d, "--index-dir", dir).Reused, "and the rebuilt one is good")
		})
	}
}

func flipEvery(b []byte, n int) []byte {
	for i := n / 2; i < len(b); i += n {
		b[i] ^= 0x10
	}
	return b
}

func TestFourConcurrentIndexersDoNotConflict(t *testing.T) {
	d := plain(t, "tar", 18)
	dir := t.TempDir()
	want := newReference(t, d).fingerprint()
	var group sync.WaitGroup
	outputs, errs := make([][]byte, 4), make([]error, 4)
	for i := range outputs {
		group.Go(func() {
			cmd := exec.Command(lsiofs, "index", d.dir, "--json", "--index-dir", dir)
			outputs[i], errs[i] = cmd.Output()
		})
	}
	group.Wait()
	for i := range outputs {
		require.NoError(t, errs[i])
		require.Equal(t, want, summaryOf(t, outputs[i]).Fingerprint)
	}
	require.Equal(t, 18, index(t, d, "--index-dir", dir).Reused)
}

func TestInterruptedIndexingResumes(t *testing.T) {
	d := dataset{dir: t.TempDir()}
	r := formatNamed("jsonl")
	small := makeDataset(t, r, codecs[2], 1, 3)
	b, err := os.ReadFile(filepath.Join(small.dir, "part-0/shard-0000.jsonl.zst"))
	require.NoError(t, err)
	for i := range 400 {
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("s-%03d.jsonl.zst", i)), b, 0o644))
	}
	want := index(t, d, "--index-dir", t.TempDir())
	dir := t.TempDir()
	// It is killed as soon as the index directory contains anything.
	cmd := exec.Command(lsiofs, "index", d.dir, "--index-dir", dir)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed, or not
		close(ended)
	}()
	for running := true; running && len(indexFiles(t, dir)) == 0; {
		select {
		case <-ended:
			running = false
		default:
		}
	}
	cmd.Process.Kill()
	<-ended
	got := index(t, d, "--index-dir", dir)
	got.Reused = 0
	require.Equal(t, want, got)
	require.Equal(t, 400, index(t, d, "--index-dir", dir).Reused)
	require.Less(t, len(indexFiles(t, dir)), 1000, "an interrupted run leaves no heap of temporary files")
}

func TestInspectMatchesCountsOfReference(t *testing.T) {
	d := plain(t, "tar", 9)
	records := len(newReference(t, d).g(usual()))
	var about map[string]any
	require.NoError(t, json.Unmarshal(toolOK(t, "inspect", d.dir, "--json"), &about))
	require.EqualValues(t, records, about["records"])
	require.NotEmpty(t, toolOK(t, "inspect", d.dir))
}

func TestDatasetsByPatternAndBySingleFile(t *testing.T) {
	d := plain(t, "jsonl", 6)
	s := usual()
	for _, path := range []string{"/**/*.jsonl", "/part-1/*.jsonl", "/part-{0..1}/*.jsonl", "/part-?/shard-0003.jsonl", "/part-0/shard-0002.jsonl"} {
		t.Run(path, func(t *testing.T) {
			some := dataset{dir: d.dir + path, ext: d.ext}
			ref := newReference(t, some)
			got := toolOK(t, append([]string{"cat", some.dir, "--worker", "2"}, s.flags()...)...)
			requireSameBytes(t, ref.data(s, 2), got, "%s", path)
			require.Equal(t, ref.fingerprint(), index(t, some).Fingerprint)
		})
	}
	links := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(d.dir, "part-0/shard-0000.jsonl"), filepath.Join(links, "a.jsonl")))
	require.NoError(t, os.Symlink(filepath.Join(d.dir, "part-1"), filepath.Join(links, "directory")))
	require.NoError(t, os.Symlink(".", filepath.Join(links, "self")))
	linked := dataset{dir: links, ext: d.ext}
	require.Equal(t, 4, index(t, linked).Shards)
	require.Equal(t, newReference(t, linked).fingerprint(), index(t, linked).Fingerprint)
}
