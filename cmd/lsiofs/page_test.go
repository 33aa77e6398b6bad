package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// pageOf returns the HTML page about a dataset.
func pageOf(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	r := ok(t, append([]string{"inspect", "--html", file}, args...)...)
	require.Empty(t, r.stdout)
	return read(t, file)
}

func TestPageMatchesInspectAndPlan(t *testing.T) {
	data := dataset(t)
	flags := []string{data, "--workers", "3", "--seed", "7", "--shuffle-size", "100", "--lanes", "4"}
	text := pageOf(t, flags...)
	var i inspect.Report
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"inspect", "--json"}, flags...)...).stdout), &i))
	p := planOf(t, append([]string{"--records", "0"}, flags...)...)
	for _, want := range []string{
		i.Fingerprint, terminal.Count(i.Records), terminal.Bytes(i.StreamBytes), i.RecordBytes.Text(), i.ChunkBytes.Text(),
		fmt.Sprintf("χ²/df %.2f", i.Mixing.Global.Value), fmt.Sprintf(">%.2f</td>", i.Mixing.Worker.Value),
		p.Storages[0].Plans[0].Notes[0], fmt.Sprintf(">%.2f</td>", p.Storages[0].Plans[0].Amplification),
		"lsiofs mount " + terminal.Quote(data) + " MNT --workers 3 --seed 7 --shuffle-size 100 --lanes 4",
		"full permutation", "shards at random, a buffer of 100", "this order, as one of 3 workers sees it",
	} {
		require.Truef(t, strings.Contains(html.UnescapeString(text), want), "no %q in the page", want)
	}
	require.Equal(t, 3, strings.Count(text, "data:image/png;base64,"))
}

// Everything that comes from a dataset is text.
func TestThePageIsInertWhateverNamesThereAre(t *testing.T) {
	dir := t.TempDir()
	names := []string{
		"<script>alert(1)</script>.jsonl", `"'><img src=x onerror=alert(1)>.jsonl`, "{{.Root}}.jsonl", "a&amp;b.jsonl",
		"x\" onload=\"alert(1).jsonl", "javascript:alert(1).jsonl", "new\nline.jsonl", strings.Repeat("long", 50) + ".jsonl",
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("{\"a\": 1}\n", 300)), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "\x1b[2J\u202egnp.jsonl"), []byte("{}\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "<b>damaged.jsonl.gz"), []byte{0x1f, 0x8b, 8, 0}, 0o644))
	text := pageOf(t, dir, "--on-corrupt", "skip")
	for _, name := range append(names, "<b>damaged.jsonl.gz") {
		require.Contains(t, html.UnescapeString(text), name)
	}
	require.Contains(t, text, `\x1b[2J\u202egnp.jsonl`)
	require.Contains(t, text, "&lt;script&gt;alert(1)&lt;/script&gt;.jsonl")
	require.Contains(t, text, "&lt;b&gt;damaged.jsonl.gz: ")
	for _, never := range []string{"<script", "<b>damaged", "<img src=x", "ZgotmplZ", "http://", "https://", "url(", "@import", "<link", "<iframe", "\x1b", "\u202e"} {
		require.NotContains(t, text, never)
	}
	for _, tag := range regexp.MustCompile(`<[a-z][^>]*>`).FindAllString(text, -1) {
		require.NotRegexp(t, `\son[a-z]+=`, tag)
		if strings.Contains(tag, "src=") {
			require.Regexp(t, `^<img src="data:image/png;base64,[A-Za-z0-9+/=]+" alt=`, html.UnescapeString(tag))
		}
	}
	require.Contains(t, text, `http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'"`)
}

func TestPageIsWrittenCompletelyOrNotAtAll(t *testing.T) {
	data, dir := dataset(t), t.TempDir()
	file := filepath.Join(dir, "page.html")
	r := ok(t, "inspect", data, "--html", file, "--json")
	require.JSONEq(t, fmt.Sprintf(`{"saved": %q, "bytes": %d}`, file, len(read(t, file))), r.stdout)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Equal(t, read(t, file), ok(t, "inspect", data, "--html", "-").stdout, "and the same on stdout")

	r = lsiofs(t, "inspect", data, "--html", dir)
	require.NotEqual(t, exit.OK, r.code)
	require.Contains(t, r.stderr, "it is a directory; name a file")
	require.NotEqual(t, exit.OK, lsiofs(t, "inspect", filepath.Join(dir, "nothing"), "--html", file+"2").code)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing is left beside it")
}

func TestPageOfTinyDataset(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.jsonl"), []byte("{}\n"), 0o644))
	text := pageOf(t, dir)
	require.Contains(t, text, "nothing to measure: one shard, or fewer than 256 records")
	require.NotContains(t, text, "Each column is")
	require.Contains(t, pageOf(t, dir, "--split", "0..0.000000001"), "records of the part", "even of no record")
	text = pageOf(t, dir, "--shuffle", string(spec.ShuffleNone))
	require.NotContains(t, text, "Better with")
}
