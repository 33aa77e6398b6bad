package catalog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestWhichFilesAreShards(t *testing.T) {
	lines, archive, frames := linesOf(3, "a"), tarOf(2, "s"), framesOf(3)
	prose := []byte("some text\nmore of it\n")
	table := bytes.Repeat([]byte("PAR1\x00"), 100)
	tests := []struct {
		name   string
		files  map[string][]byte
		asked  string
		want   []string
		format string
		passed int
		err    []string
	}{
		{name: "by extension, in bytewise order of paths",
			files: map[string][]byte{"b.tar": archive, "B.tar": archive, "a/z.tar.gz": gz(archive), "a.tar": archive, "a-1.tgz": gz(archive)},
			want:  []string{"B.tar", "a-1.tgz", "a.tar", "a/z.tar.gz", "b.tar"}, format: "tar"},
		{name: "hidden files and directories are passed over",
			files: map[string][]byte{"a.tar": archive, ".b.tar": archive, ".c/d.tar": archive}, want: []string{"a.tar"}, format: "tar"},
		{name: "by content where the extension is not known",
			files: map[string][]byte{"x-00000-of-00002": frames, "x-00001-of-00002": frames, "notes.md": prose, "_SUCCESS": nil},
			want:  []string{"x-00000-of-00002", "x-00001-of-00002"}, format: "tfrecord", passed: 2},
		{name: "by decoded content behind .gz",
			files: map[string][]byte{"a.json.gz": gz(lines[:5], lines[5:]), "b.json": lines, "c.gz": gz(prose)},
			want:  []string{"a.json.gz", "b.json"}, format: "jsonl", passed: 1},
		{name: "what does not decode is no shard by its content",
			files: map[string][]byte{"a.tar": archive, "b.bin.gz": prose}, want: []string{"a.tar"}, format: "tar", passed: 1},
		{name: "a tar without an extension", files: map[string][]byte{"a": archive}, want: []string{"a"}, format: "tar"},
		{name: "text counts when there is nothing else",
			files: map[string][]byte{"a.txt": prose, "b.txt.gz": gz(prose), "c.md": prose}, want: []string{"a.txt", "b.txt.gz"}, format: "lines", passed: 1},
		{name: "text does not count beside shards",
			files: map[string][]byte{"a.txt": prose, "b.tar": archive}, want: []string{"b.tar"}, format: "tar", passed: 1},
		{name: "text does not count beside shards by content",
			files: map[string][]byte{"a.txt": prose, "b": lines}, want: []string{"b"}, format: "jsonl", passed: 1},
		{name: "two formats at once",
			files: map[string][]byte{"a.tar": archive, "b.jsonl": lines, "c.jsonl": lines},
			err:   []string{"2 formats", "tar (1 file, a.tar", "jsonl (2 files, b.jsonl", "--format jsonl or --format tar", "pattern"}},
		{name: "two formats, one by content",
			files: map[string][]byte{"a.tar": archive, "b": lines}, err: []string{"2 formats"}},
		{name: "nothing left names extensions and formats",
			files: map[string][]byte{"a.csv": prose, "b.csv.gz": gz(prose), "c.csv": prose, "LICENSE": prose},
			err:   []string{"no shards", ".csv (2)", ".csv.gz (1)", "no extension (1)", "--format lines"}},
		{name: "npz files hold several arrays",
			files: map[string][]byte{"a.npz": prose},
			err:   []string{"no shards", ".npz (1)", "save each as an .npy"}},
		{name: "what is not supported yet says how to convert it",
			files: map[string][]byte{"a.parquet": prose, "b/c.parquet": prose, "README.md": prose, "LICENSE": prose, "d.md": prose},
			err:   []string{"holds no shards, and 2 files of Parquet (a.parquet …), which is not supported yet", "convert", "pandas.read_parquet"}},
		{name: "MosaicML's shards are not passed over for their index",
			files: map[string][]byte{"index.json": []byte("{\"version\": 2}\n"), "shard.00000.mds.zstd": table},
			err:   []string{"MDS (shard.00000.mds.zstd …)", "streaming.LocalDataset"}},
		{name: "nor others for a text beside them",
			files: map[string][]byte{"a.arrow": table, "README.txt": prose}, err: []string{"1 file of Arrow", "Dataset.from_file"}},
		{name: "a table beside more lines of JSON is passed over",
			files: map[string][]byte{"a.json": lines, "words.parquet": table[:5]}, want: []string{"a.json"}, format: "jsonl", passed: 1},
		{name: "and beside a shard",
			files: map[string][]byte{"a.jsonl": lines, "a.parquet": table}, want: []string{"a.jsonl"}, format: "jsonl", passed: 1},
		{name: "arrays by their extension, not by content",
			files: map[string][]byte{"a.npy": rowsOf(3, "'<i2'"), "b.npy.gz": gz(rowsOf(3, "'<i2'")), "c": rowsOf(3, "'<i2'")}, want: []string{"a.npy", "b.npy.gz"}, format: "npy", passed: 1},
		{name: "nothing at all", err: []string{"holds no files"}},
		{name: "a format that is asked for takes its extensions",
			files: map[string][]byte{"a.tar": archive, "b.jsonl": lines, "c": lines}, asked: "jsonl", want: []string{"b.jsonl"}, format: "jsonl", passed: 2},
		{name: "or, where there are none, all",
			files: map[string][]byte{"a.json": lines, "b.x": lines}, asked: "jsonl", want: []string{"a.json", "b.x"}, format: "jsonl"},
		{name: "lines take all files",
			files: map[string][]byte{"a.jsonl": lines, "b.txt": prose}, asked: "lines", want: []string{"a.jsonl", "b.txt"}, format: "lines"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for path, data := range tt.files {
				w.write(path, data)
			}
			c, err := w.open(func(c *Config) {
				if tt.asked != "" {
					c.Format.Name = tt.asked
				}
			})
			if tt.err != nil {
				require.Error(t, err)
				for _, part := range tt.err {
					require.ErrorContains(t, err, part)
				}
				return
			}
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, tt.want, paths(c))
			require.Equal(t, tt.format, c.Format().Name)
			require.Equal(t, tt.passed, c.PassedOver())
		})
	}
}

func paths(c *Catalog) []string {
	list := make([]string, c.Shards())
	for i := range list {
		list[i] = c.Shard(i).Object.Path
	}
	return list
}

func TestTheContentOfALargeCompressedFileIsJudgedByItsBegin(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	var lines bytes.Buffer // does not get smaller by compression, nor fit what is read
	for lines.Len() < 3<<20 {
		fmt.Fprintf(&lines, `{"x": "%x%x%x%x"}`+"\n", noise.Uint64(), noise.Uint64(), noise.Uint64(), noise.Uint64())
	}
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer encoder.Close()
	w := newWorld(t)
	w.write("a.json.zst", encoder.EncodeAll(lines.Bytes(), nil))
	w.write("b.json.gz", gz(lines.Bytes()))
	c := w.mustOpen()
	require.Equal(t, "jsonl", c.Format().Name)
	require.Equal(t, 2, c.Shards())
	require.Equal(t, c.Shard(0).Records, c.Shard(1).Records)
}

func TestFilesWithKnownExtensionsAreNotOpenedToFindThem(t *testing.T) {
	w := newWorld(t)
	w.write("a.tfrecord", []byte("any"))
	w.write("b.jsonl", linesOf(3, "a"))
	require.Zero(t, w.readsOf(func() {
		_, err := w.open()
		require.ErrorContains(t, err, "2 formats")
	}))
}

func TestPatterns(t *testing.T) {
	lines := linesOf(2, "a")
	var tree []string
	for i := range 12 {
		tree = append(tree, fmt.Sprintf("train-%03d.jsonl", i), fmt.Sprintf("v/%d/part-%d.jsonl", i%3, i))
	}
	tree = append(tree, "val/x.jsonl", "odd[1].jsonl", "deep/a/b/c/y.jsonl", "notes.md")
	tests := []struct {
		pattern string
		root    string // below the dataset
		want    int
		first   string
		err     string
	}{
		{pattern: "train-{000..011}.jsonl", want: 12, first: "train-000.jsonl"},
		{pattern: "train-{002..004}.jsonl", want: 3, first: "train-002.jsonl"},
		{pattern: "train-{000..012}.jsonl", err: "train-012.jsonl is missing"},
		{pattern: "train-{0..11}.jsonl", err: "train-0.jsonl is missing"},
		{pattern: "v/{0..2}/part-*.jsonl", root: "v", want: 12, first: "0/part-0.jsonl"},
		{pattern: "v/*/part-{0..11}.jsonl", root: "v", want: 12, first: "0/part-0.jsonl"},
		{pattern: "v/*/part-{8..11}.jsonl", root: "v", want: 4, first: "0/part-9.jsonl"},
		{pattern: "v/*/part-{8..12}.jsonl", err: "*/part-12.jsonl is missing"},
		{pattern: "v/{0..2}/part-{0..1}.jsonl", err: "0/part-1.jsonl is missing"},
		{pattern: "**/*.jsonl", want: 27, first: "deep/a/b/c/y.jsonl"},
		{pattern: "deep/**/y.jsonl", root: "deep", want: 1, first: "a/b/c/y.jsonl"},
		{pattern: "{train-{000..001},val/x}.jsonl", want: 3, first: "train-000.jsonl"},
		{pattern: "{train,none}-{010..011}.jsonl", want: 2, first: "train-010.jsonl"},
		{pattern: "{train,none}-{010..012}.jsonl", err: "{train,none}-012.jsonl is missing"},
		{pattern: "{train-{0..9999},val/x}.jsonl", err: "within braces"},
		{pattern: "{deep/a,val}/**/*.jsonl", want: 2, first: "deep/a/b/c/y.jsonl"},
		{pattern: "train-00[0-4].jsonl", want: 5, first: "train-000.jsonl"},
		{pattern: "odd[1].jsonl", want: 1, first: "odd[1].jsonl"},
		{pattern: "val/x.jsonl", root: "val", want: 1, first: "x.jsonl"},
		{pattern: "val", root: "val", want: 1, first: "x.jsonl"},
		{pattern: "nothing-*.jsonl", err: "holds no files"},
		{pattern: "none/*.jsonl", err: "none is no directory"},
		{pattern: "train-{5..2}.jsonl", err: "goes down: write {2..5}"},
		{pattern: "train-{0..99999999}.jsonl", err: "stands for more than"},
		{pattern: "{0..2000}/{0..2000}.jsonl", err: "stands for more than"},
		{pattern: "train-{0..99999999999}.jsonl", err: "too large"},
		{pattern: "train-[0.jsonl", err: "not well formed"},
	}
	w := newWorld(t)
	for _, path := range tree {
		w.write(path, lines)
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			c, err := w.open(dataset(filepath.Join(w.data, tt.pattern)))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			defer c.Close()
			require.Equal(t, tt.want, c.Shards())
			require.Equal(t, tt.first, c.Shard(0).Object.Path)
			real, err := filepath.EvalSymlinks(filepath.Join(w.data, tt.root))
			require.NoError(t, err)
			require.Equal(t, real, c.Root())
		})
	}
}

func TestAPatternEntersNoDirectoryThatItCantMatchIn(t *testing.T) {
	tests := []struct {
		pattern string
		in, out []string
	}{
		{"*.tar", nil, []string{"a", "a/b"}},
		{"a*/x/*.tar", []string{"a1", "a1/x"}, []string{"b", "a1/y", "a1/x/z"}},
		{"s-{00..12}/**/*.tar", []string{"s-03", "s-03/a", "s-03/a/b"}, []string{"s-3", "t"}},
		{"**", []string{"a", "a/b"}, nil},
		{"a/**", []string{"a", "a/b/c"}, []string{"b"}},
		{"{a,b}/{1..10}/x", []string{"a", "b", "b/10"}, []string{"c", "a/x", "a/123"}},
		{"{a/b,c}/*.tar", []string{"a", "a/b", "anything"}, nil},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.pattern)
		require.NoError(t, err)
		for _, dir := range tt.in {
			require.True(t, p.match(dir, true), "%s enters %s", tt.pattern, dir)
		}
		for _, dir := range tt.out {
			require.False(t, p.match(dir, true), "%s enters %s", tt.pattern, dir)
		}
	}
}

func TestARangeBesideAWildcardNeedsAFileForEachNumber(t *testing.T) {
	p, err := parsePattern("p{08..11}-*.tar")
	require.NoError(t, err)
	list := func(names ...string) (objects []storage.Object) {
		for _, n := range names {
			objects = append(objects, storage.Object{Path: n})
		}
		return objects
	}
	got, err := p.choose(list("p08-a.tar", "p09-a.tar", "p09-b.tar", "p10-c.tar", "p11-d.tar", "p12-no.tar"))
	require.NoError(t, err)
	require.Equal(t, list("p08-a.tar", "p09-a.tar", "p09-b.tar", "p10-c.tar", "p11-d.tar"), got)
	_, err = p.choose(list("p08-a.tar", "p09-a.tar", "p11-d.tar"))
	require.ErrorContains(t, err, "p10-*.tar is missing")
}

func TestRangesExpandAsAPlainLoopDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Uint64Range(0, 120).Draw(t, "low")
		high := low + rapid.Uint64Range(0, 50).Draw(t, "more")
		width := rapid.IntRange(1, 5).Draw(t, "width")
		text := fmt.Sprintf("{%0*d..%d}", width, low, high)
		padded := strings.HasPrefix(text, "{0") && !strings.HasPrefix(text, "{0.")
		p, err := parsePattern("s-" + text + rapid.SampledFrom([]string{".tar", "*.tar"}).Draw(t, "rest"))
		require.NoError(t, err)
		var objects, want []storage.Object
		for i := range uint64(200) {
			name := fmt.Sprintf("s-%d.tar", i)
			if padded {
				name = fmt.Sprintf("s-%0*d.tar", max(width, len(fmt.Sprint(high))), i)
			}
			objects = append(objects, storage.Object{Path: name})
			if i >= low && i <= high {
				want = append(want, objects[i])
			}
		}
		for _, o := range want {
			require.True(t, p.match(o.Path, false), o.Path)
		}
		got, err := p.choose(slices.DeleteFunc(slices.Clone(objects), func(o storage.Object) bool { return !p.match(o.Path, false) }))
		require.NoError(t, err)
		for _, o := range want {
			require.Contains(t, got, o)
		}
		if p.plain() {
			require.Equal(t, want, got)
		}
	})
}

func TestASingleFileAndALinkToADirectory(t *testing.T) {
	w := newWorld(t)
	w.write("sub/a.jsonl", linesOf(3, "a"))
	w.write("sub/b.jsonl", linesOf(3, "b"))
	c := w.mustOpen(dataset(filepath.Join(w.data, "sub/b.jsonl")))
	require.Equal(t, []string{"b.jsonl"}, paths(c))
	link := filepath.Join(w.data, "link")
	require.NoError(t, os.Symlink("sub", link))
	c = w.mustOpen(dataset(link))
	require.Equal(t, []string{"a.jsonl", "b.jsonl"}, paths(c))
	require.Equal(t, "sub", filepath.Base(c.Root()))
}

func TestDefaultsOfAFormatAreFilledIn(t *testing.T) {
	w := newWorld(t)
	w.write("a.bin", make([]byte, 100))
	c := w.mustOpen(func(c *Config) { c.Format = spec.Format{Name: "fixed", RecordBytes: 10} })
	require.Equal(t, spec.Format{Name: "fixed", RecordBytes: 10, StrideBytes: 10, Remainder: spec.RemainderCorrupt}, c.Format())
}
