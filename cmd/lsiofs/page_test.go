package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// pageOf is the page of a dataset.
func pageOf(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	r := ok(t, append([]string{"inspect", "--html", file}, args...)...)
	require.Empty(t, r.stdout)
	return read(t, file)
}

func TestThePageSaysWhatInspectAndPlanSay(t *testing.T) {
	data := dataset(t)
	flags := []string{data, "--workers", "3", "--seed", "7", "--shuffle-size", "100", "--lanes", "4"}
	text := pageOf(t, flags...)
	var i inspection
	require.NoError(t, json.Unmarshal([]byte(ok(t, append([]string{"inspect", "--json"}, flags...)...).stdout), &i))
	p := planOf(t, append([]string{"--records", "0"}, flags...)...)
	for _, want := range []string{
		i.Fingerprint, terminal.Count(i.Records), terminal.Bytes(i.StreamBytes), i.RecordBytes.text(), i.ChunkBytes.text(),
		fmt.Sprintf("χ²/df %.2f", i.Mixing.Global.Value), fmt.Sprintf(">%.2f</td>", i.Mixing.Worker.Value),
		p.Storages[0].Plans[0].Notes[0], fmt.Sprintf(">%.2f</td>", p.Storages[0].Plans[0].Amplification),
		"lsiofs mount " + terminal.Quote(data) + " MNT --workers 3 --seed 7 --shuffle-size 100 --lanes 4",
		"full permutation", "shards at random, a buffer of 100", "this order, as one of 3 workers sees it",
	} {
		require.Truef(t, strings.Contains(html.UnescapeString(text), want), "no %q in the page", want)
	}
	require.Equal(t, 3, strings.Count(text, "data:image/png;base64,"))
}

// TestThePageIsInertWhateverNamesThereAre: what comes from a dataset is text.
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

// manyShards are as many shards as its value.
type manyShards int

func (n manyShards) Shards() int { return int(n) }
func (n manyShards) Shard(i int) catalog.Shard {
	return catalog.Shard{Object: storage.Object{Path: fmt.Sprintf("part-%d/shard-%07d.tar", i%100, i), SizeBytes: int64(1000 + i*7919%100_000)}, Records: 3, DecodedBytes: 5000}
}

func TestThePageIsSmallWhateverTheDataset(t *testing.T) {
	const shards = 100_000
	p := page{inspection: inspection{Shards: shards, Root: "/data/train", Dataset: "/data/train", Damages: map[string]uint64{}}, Chart: newShardChart(manyShards(shards))}
	for i := range shards {
		p.Damaged = append(p.Damaged, fmt.Sprintf("shard-%d.tar: record %d: %s", i, i, strings.Repeat("bad ", 20)))
		p.Reasons = append(p.Reasons, reasonRow{Text: fmt.Sprintf("reason %d", i), Count: 1})
	}
	starts := make([]uint64, shards+1)
	for i := range starts {
		starts[i] = uint64(3 * i)
	}
	subject := quality.Subject{ShardStarts: starts, ChunkStarts: func(_, _ uint64) []uint64 { return starts }}
	shuffled := quality.ShardsAndBuffer(starts, nil, 100_000, 1)
	mix, densities := quality.Survey(shuffled, subject.ShardStarts, nil, quality.Resolution{Columns: pageColumns, Rows: pageRows}, func() bool { return true })
	pic, err := newPicture(densities)
	require.NoError(t, err)
	for range 3 {
		p.Shuffles = append(p.Shuffles, shuffleRow{Name: "this order", Note: "note", Mix: mix, Picture: pic})
	}
	doc, err := p.render()
	require.NoError(t, err)
	require.Less(t, len(doc), 200<<10)
	require.LessOrEqual(t, len(p.Chart.Bars), chartBars)
	require.Equal(t, shards, p.Chart.Bars[len(p.Chart.Bars)-1].Last)
	require.Len(t, p.Chart.Lists, 2)
	require.Contains(t, string(doc), "These are the first 100.")
}

func TestTheChartOfShardsNamesTheLargestAndTheSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 90).Draw(t, "sizes")
		var ends sizeEnds
		for i, n := range sizes {
			ends.add(shardRow{Number: i, Bytes: n})
		}
		lists := ends.lists(50)
		if len(sizes) <= chartListed {
			require.Len(t, lists, 1)
			require.Len(t, lists[0].Shards, len(sizes))
			return
		}
		sorted := slices.Clone(sizes)
		slices.Sort(sorted)
		for i := range chartEnds {
			require.Equal(t, sorted[len(sorted)-1-i], lists[0].Shards[i].Bytes)
			require.Equal(t, sorted[i], lists[1].Shards[i].Bytes)
		}
	})
}

func TestAPictureShowsDensities(t *testing.T) {
	pic, err := newPicture(&quality.Picture{Columns: 3, Rows: 2, Density: []float32{0, 1, 2, 3, 50, 1}, Shards: 4})
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(pic.URL), "data:image/png;base64,"))
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	var alphas []uint32
	for y := range 2 {
		for x := range 3 {
			_, _, _, a := img.At(x, y).RGBA()
			alphas = append(alphas, a>>8)
		}
	}
	require.Equal(t, []uint32{0, 85, 170, 255, 255, 85}, alphas)
	require.Equal(t, "2.0 shards", pic.PerRow())
	pic, err = newPicture(nil)
	require.NoError(t, err)
	require.Nil(t, pic)
}

func TestThePageIsWrittenWholeOrNotAtAll(t *testing.T) {
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
	require.Contains(t, r.stderr, "no regular file; name another one")
	require.NotEqual(t, exit.OK, lsiofs(t, "inspect", filepath.Join(dir, "nothing"), "--html", file+"2").code)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1, "nothing is left beside it")
}

func TestThePageOfVeryLittle(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "one.jsonl"), []byte("{}\n"), 0o644))
	text := pageOf(t, dir)
	require.Contains(t, text, "nothing to measure: one shard, or fewer than 256 records")
	require.NotContains(t, text, "Each column is")
	require.Contains(t, pageOf(t, dir, "--split", "0..0.000000001"), "records of the part", "even of no record")
	text = pageOf(t, dir, "--shuffle", string(spec.ShuffleNone))
	require.NotContains(t, text, "Better with")
}

func TestAPageSaysWhyAMountWouldBeRefused(t *testing.T) {
	p := page{NoReads: "the spool has no room", Shuffles: []shuffleRow{{Name: "this order", Note: "note"}}}
	doc, err := p.render()
	require.NoError(t, err)
	require.Contains(t, string(doc), "A mount would be refused: the spool has no room")
}
