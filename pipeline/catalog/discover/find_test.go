package discover

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func parquetFile(t *testing.T) []byte {
	data, err := os.ReadFile("../../format/tables/testdata/images/i.parquet")
	require.NoError(t, err)
	return data
}

func TestWhichFilesAreShards(t *testing.T) {
	lines, archive, frames := linesOf(3, "a"), tarOf(2, "s"), framesOf(3)
	prose := []byte("some text\nmore of it\n")
	rows := []byte("\x93NUMPY\x01\x00v\x00{'descr': '<i2', 'fortran_order': False, 'shape': (3, 4), }")
	table := bytes.Repeat([]byte("ARROW1\x00\x00"), 100)
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
			files: map[string][]byte{"b.tar": archive, "B.tar": archive, "a/z.tar.gz": formattest.Gzip(archive), "a.tar": archive, "a-1.tgz": formattest.Gzip(archive)},
			want:  []string{"B.tar", "a-1.tgz", "a.tar", "a/z.tar.gz", "b.tar"}, format: "tar"},
		{name: "hidden files and directories are passed over",
			files: map[string][]byte{"a.tar": archive, ".b.tar": archive, ".c/d.tar": archive}, want: []string{"a.tar"}, format: "tar", passed: 2},
		{name: "by content where the extension is not known",
			files: map[string][]byte{"x-00000-of-00002": frames, "x-00001-of-00002": frames, "notes.md": prose, "_SUCCESS": nil},
			want:  []string{"x-00000-of-00002", "x-00001-of-00002"}, format: "tfrecord", passed: 2},
		{name: "by decoded content behind .gz",
			files: map[string][]byte{"a.json.gz": formattest.Gzip(lines), "b.json": lines, "c.gz": formattest.Gzip(prose)},
			want:  []string{"a.json.gz", "b.json"}, format: "jsonl", passed: 1},
		{name: "what does not decode is no shard by its content",
			files: map[string][]byte{"a.tar": archive, "b.bin.gz": prose}, want: []string{"a.tar"}, format: "tar", passed: 1},
		{name: "a tar without an extension", files: map[string][]byte{"a": archive}, want: []string{"a"}, format: "tar"},
		{name: "text counts when there is nothing else",
			files: map[string][]byte{"a.txt": prose, "b.txt.gz": formattest.Gzip(prose), "c.md": prose}, want: []string{"a.txt", "b.txt.gz"}, format: "lines", passed: 1},
		{name: "text does not count beside shards",
			files: map[string][]byte{"a.txt": prose, "b.tar": archive}, want: []string{"b.tar"}, format: "tar", passed: 1},
		{name: "text does not count beside shards by content",
			files: map[string][]byte{"a.txt": prose, "b": lines}, want: []string{"b"}, format: "jsonl", passed: 1},
		{name: "two formats at once",
			files: map[string][]byte{"a.tar": archive, "b.jsonl": lines, "c.jsonl": lines},
			err:   []string{"2 formats", "tar (1 file, a.tar", "jsonl (2 files, such as b.jsonl", "--format jsonl or --format tar", "pattern"}},
		{name: "one file that shows a format beside names that say another",
			files: map[string][]byte{"a.tar": archive, "b": lines}, want: []string{"a.tar"}, format: "tar", passed: 1},
		{name: "two formats by content",
			files: map[string][]byte{"a1": archive, "a2": archive, "b": lines}, err: []string{"2 formats", "tar (2 files, such as a1", "--exclude"}},
		{name: "two formats in one naming: the others are damaged shards",
			files: map[string][]byte{"a1": archive, "a2": lines}, want: []string{"a1", "a2"}, format: "tar"},
		{name: "one of a naming that shows nothing is a shard as the others are",
			files: map[string][]byte{"p-1.json.gz": formattest.Gzip(lines), "p-2.json.gz": prose, "p-3.json.gz": nil},
			want:  []string{"p-1.json.gz", "p-2.json.gz", "p-3.json.gz"}, format: "jsonl"},
		{name: "namings are of one directory",
			files: map[string][]byte{"a/p-1.json": lines, "b/p-1.json": prose[:5]}, want: []string{"a/p-1.json"}, format: "jsonl", passed: 1},
		{name: "two of another naming that show the format that names say",
			files: map[string][]byte{"a.jsonl": lines, "x-1.json": lines, "x-2.json": lines},
			err:   []string{"a.jsonl", "2 files, x-{1..2}.json", "--exclude", "pattern"}},
		{name: "one such file is left out",
			files: map[string][]byte{"a.jsonl": lines, "info.json": lines, "a.jsonl.bak": lines, "a.jsonl.1": lines}, want: []string{"a.jsonl"}, format: "jsonl", passed: 3},
		{name: "content that holds less than what is left out",
			files: map[string][]byte{"chunk-0.bin": table, "chunk-1.bin": table, "index.json": lines}, err: []string{"index.json", "chunk-{0..1}.bin", "more bytes"}},
		{name: "names that do are only noted",
			files: map[string][]byte{"chunk-0.bin": table, "chunk-1.bin": table, "index.jsonl": lines}, want: []string{"index.jsonl"}, format: "jsonl", passed: 2},
		{name: "an empty shard counts",
			files: map[string][]byte{"a.jsonl": lines, "b.jsonl": nil}, want: []string{"a.jsonl", "b.jsonl"}, format: "jsonl"},
		{name: "names of Spark, and clutter",
			files: map[string][]byte{"part-0.json": lines, "_SUCCESS": nil, "_temporary/0/part-0.json": lines, "lost+found/x.json": lines, "__MACOSX/y.json": lines, "Thumbs.db": prose, "desktop.ini": prose, ".DS_Store": prose},
			want:  []string{"part-0.json"}, format: "jsonl", passed: 7},
		{name: "numbers of TFDS, capitals, and other codecs' names",
			files: map[string][]byte{"x.tfrecord-00000-of-00002": frames, "X.TFRECORD-00001-OF-00002": frames, "y.TFRec.GZIP": formattest.Gzip(frames), "features.json": lines},
			err:   nil, want: []string{"X.TFRECORD-00001-OF-00002", "x.tfrecord-00000-of-00002", "y.TFRec.GZIP"}, format: "tfrecord", passed: 1},
		{name: "one shard in two codecs",
			files: map[string][]byte{"a.jsonl": lines, "a.jsonl.zst": formattest.Zstd(lines)}, err: []string{"two codecs", "a.jsonl and ", "a.jsonl.zst"}},
		{name: "and as tar and tgz",
			files: map[string][]byte{"a.tar": archive, "a.tgz": formattest.Gzip(archive)}, err: []string{"a.tar and ", "a.tgz"}},
		{name: "xz says how to go on",
			files: map[string][]byte{"a.jsonl.xz": table, "b.jsonl.xz": table}, err: []string{".jsonl.xz (2)", "xz -dc"}},
		{name: "asked for: names that say it, numbers behind or not", asked: "tfrecord",
			files: map[string][]byte{"x.tfrecord-00000-of-00001": frames, "features.json": lines}, want: []string{"x.tfrecord-00000-of-00001"}, format: "tfrecord", passed: 1},
		{name: "asked for: one extension that says nothing", asked: "jsonl",
			files: map[string][]byte{"a.json": lines, "b.json.gz": formattest.Gzip(lines)}, want: []string{"a.json", "b.json.gz"}, format: "jsonl"},
		{name: "asked for: several extensions", asked: "lines",
			files: map[string][]byte{"train.csv": prose, "val.csv": prose, "meta.pkl": prose}, err: []string{".csv (2)", ".pkl (1)", "/*.csv"}},
		{name: "nothing left names extensions and formats",
			files: map[string][]byte{"a.csv": prose, "b.csv.gz": formattest.Gzip(prose), "c.csv": prose, "LICENSE": prose},
			err:   []string{"no shards", ".csv (2)", ".csv.gz (1)", "no extension (1)", "--format lines"}},
		{name: "npz files hold several arrays",
			files: map[string][]byte{"a.npz": prose},
			err:   []string{"no shards", ".npz (1)", "save each as an .npy"}},
		{name: "what is not supported yet says how to convert it",
			files: map[string][]byte{"a.arrow": prose, "b/c.arrow": prose, "README.md": prose, "LICENSE": prose, "d.md": prose},
			err:   []string{"holds no shards, but 2 files of Arrow (such as a.arrow), which lsiofs does not read yet", "convert", "Dataset.from_file"}},
		{name: "MosaicML's shards are not passed over for their index",
			files: map[string][]byte{"index.json": []byte("{\"version\": 2}\n"), "shard.00000.mds.zstd": table},
			err:   []string{"MDS (shard.00000.mds.zstd)", "streaming.LocalDataset"}},
		{name: "nor others for a text beside them",
			files: map[string][]byte{"a.arrow": table, "README.txt": prose}, err: []string{"1 file of Arrow", "Dataset.from_file"}},
		{name: "a table beside more lines of JSON is passed over",
			files: map[string][]byte{"a.json": lines, "words.arrow": table[:5]}, want: []string{"a.json"}, format: "jsonl", passed: 1},
		{name: "and beside a shard",
			files: map[string][]byte{"a.jsonl": lines, "a.arrow": table}, want: []string{"a.jsonl"}, format: "jsonl", passed: 1},
		{name: "Parquet by its extension, with a name that is no shard's beside it",
			files: map[string][]byte{"data/train-0.parquet": parquetFile(t), "data/_metadata": prose, "_SUCCESS": nil, "README.md": prose}, want: []string{"data/train-0.parquet"}, format: "parquet", passed: 3},
		{name: "Parquet by its content", files: map[string][]byte{"a": parquetFile(t), "b": parquetFile(t)}, want: []string{"a", "b"}, format: "parquet"},
		{name: "a Delta table", files: map[string][]byte{"a.parquet": parquetFile(t), "_delta_log/0.json": lines}, err: []string{"Delta table", "pattern"}},
		{name: "an Iceberg table", files: map[string][]byte{"t/data/a.parquet": parquetFile(t), "t/metadata/v1.metadata.json": prose}, err: []string{"Iceberg table", "pattern"}},
		{name: "Parquet beside lines", files: map[string][]byte{"a.jsonl": lines, "a.parquet": parquetFile(t)}, err: []string{"shards of 2 formats", "--format parquet"}},
		{name: "Parquet that ends early is damaged", files: map[string][]byte{"a.parquet": parquetFile(t)[:1000]}, want: []string{"a.parquet"}, format: "parquet"},
		{name: "arrays by their extension, not by content",
			files: map[string][]byte{"a.npy": rows, "b.npy.gz": formattest.Gzip(rows), "c": rows}, want: []string{"a.npy", "b.npy.gz"}, format: "npy", passed: 1},
		{name: "nothing at all", err: []string{"holds no files"}},
		{name: "a format that is asked for takes its extensions",
			files: map[string][]byte{"a.tar": archive, "b.jsonl": lines, "c": lines}, asked: "jsonl", want: []string{"b.jsonl"}, format: "jsonl", passed: 2},
		{name: "lines are no other than formats that have names",
			files: map[string][]byte{"a.jsonl": lines, "b.txt": prose}, asked: "lines", want: []string{"b.txt"}, format: "lines", passed: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for path, data := range tt.files {
				w.write(path, data)
			}
			format := spec.Format{Name: "auto"}
			if tt.asked != "" {
				format.Name = tt.asked
			}
			found, err := w.find(w.dir, format)
			if tt.err != nil {
				require.Error(t, err)
				for _, part := range tt.err {
					require.ErrorContains(t, err, part)
				}
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, paths(found))
			require.Equal(t, tt.format, found.Format.Name)
			require.Equal(t, tt.format, found.Unpacker.Name())
			require.Equal(t, tt.passed, found.Selection.LeftOut)
		})
	}
}

func paths(f Found) (list []string) {
	for _, s := range f.Shards {
		list = append(list, s.Object.Path)
	}
	return list
}

func TestLargeCompressedFileIsJudgedByItsStart(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	var lines bytes.Buffer // incompressible, and larger than what is read
	for lines.Len() < 3<<20 {
		fmt.Fprintf(&lines, `{"x": "%x%x%x%x"}`+"\n", noise.Uint64(), noise.Uint64(), noise.Uint64(), noise.Uint64())
	}
	w := newWorld(t)
	w.write("a.json.zst", formattest.Zstd(lines.Bytes()))
	w.write("b.json.gz", formattest.Gzip(lines.Bytes()))
	found, err := w.find(w.dir, spec.Format{Name: "auto"})
	require.NoError(t, err)
	require.Equal(t, "jsonl", found.Format.Name)
	require.Equal(t, []string{"a.json.zst", "b.json.gz"}, paths(found))
}

func TestFindingFilesWithKnownExtensionsDoesNotOpenThem(t *testing.T) {
	w := newWorld(t)
	w.write("a.tfrecord", []byte("any"))
	w.write("b.jsonl", linesOf(3, "a"))
	_, err := w.find(w.dir, spec.Format{Name: "auto"})
	require.ErrorContains(t, err, "2 formats")
	require.Zero(t, w.reads.Load())
}

func TestFilesJudgedByEarlierRunAreNotOpened(t *testing.T) {
	w := newWorld(t)
	w.write("a", linesOf(3, "a"))
	w.write("b", []byte("no shard"))
	w.write("c", []byte("of a format that is gone"))
	w.known = func(o storage.Object) (string, bool) {
		return map[string]string{"a": "jsonl", "b": "", "c": "gone"}[o.Path], true
	}
	found, err := w.find(w.dir, spec.Format{Name: "auto"})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, paths(found))
	require.EqualValues(t, 1, w.reads.Load(), "c alone is looked into")
	require.Len(t, found.Judged, 2)
	require.Equal(t, 2, found.Selection.LeftOut)
}

func TestIndexDirectoryContainsNoShards(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(3, "a"))
	w.write("index/b.jsonl", linesOf(3, "b"))
	w.indexDir = filepath.Join(w.dir, "index")
	found, err := w.find(w.dir, spec.Format{Name: "auto"})
	require.NoError(t, err)
	require.Equal(t, []string{"a.jsonl"}, paths(found))
	require.Zero(t, found.Selection.LeftOut)
}

func TestUnreadableFileErrorNamesIt(t *testing.T) {
	w := newWorld(t)
	w.write("b", linesOf(3, "b"))
	denied := errors.New("permission denied")
	w.failure = denied
	_, err := w.find(w.dir, spec.Format{Name: "auto"})
	require.ErrorIs(t, err, denied)
	require.ErrorContains(t, err, "b: ")
	require.ErrorContains(t, err, "--exclude")
	require.NotContains(t, err.Error(), "skip", "no dataset depends on what could be read at the time")
}

func TestPatterns(t *testing.T) {
	lines := linesOf(2, "a")
	var tree []string
	for i := range 12 {
		tree = append(tree, fmt.Sprintf("train-%03d.jsonl", i), fmt.Sprintf("v/%d/part-%d.jsonl", i%3, i))
	}
	tree = append(tree, "val/x.jsonl", "odd[1].jsonl", "deep/a/b/c/y.jsonl", "notes.md", ".dot.jsonl", ".dir/z.jsonl", "lost+found/e.jsonl")
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
		{pattern: "**/*.jsonl", want: 28, first: "deep/a/b/c/y.jsonl"},
		{pattern: "deep/**/y.jsonl", root: "deep", want: 1, first: "a/b/c/y.jsonl"},
		{pattern: "{train-{000..001},val/x}.jsonl", want: 3, first: "train-000.jsonl"},
		{pattern: "{train,none}-{010..011}.jsonl", err: "none-010.jsonl is missing"},
		{pattern: "{train-010,extra}.jsonl", err: "extra.jsonl is missing"},
		{pattern: "{train-010,val/x}.jsonl", want: 2, first: "train-010.jsonl"},
		{pattern: "{train-01,extra}*.jsonl", want: 2, first: "train-010.jsonl"},
		{pattern: "{train,none}-{010..012}.jsonl", err: "train-012.jsonl is missing"},
		{pattern: "{train-{0..9999},val/x}.jsonl", err: "train-0.jsonl is missing"},
		{pattern: "{deep/a,val}/**/*.jsonl", want: 2, first: "deep/a/b/c/y.jsonl"},
		{pattern: "train-00[0-4].jsonl", want: 5, first: "train-000.jsonl"},
		{pattern: "odd[1].jsonl", want: 1, first: "odd[1].jsonl"},
		{pattern: "val/x.jsonl", root: "val", want: 1, first: "x.jsonl"},
		{pattern: "val", root: "val", want: 1, first: "x.jsonl"},
		{pattern: "lost+*/*.jsonl", want: 1, first: "lost+found/e.jsonl"},
		{pattern: ".dot.jsonl", want: 1, first: ".dot.jsonl"},
		{pattern: ".dir/*.jsonl", root: ".dir", want: 1, first: "z.jsonl"},
		{pattern: ".do*.jsonl", err: "matches no files except those that are left out, such as .dot.jsonl (its name begins with a dot)"},
		{pattern: ".d*/*.jsonl", err: "matches no files except"},
		{pattern: "{.dot,val/x}.jsonl", err: ".dot.jsonl is named by the pattern but is not a shard: its name begins with a dot"},
		{pattern: "nothing-*.jsonl", err: "no file matches"},
		{pattern: "none/*.jsonl", err: "none: file does not exist: check the path"},
		{pattern: "train-{5..2}.jsonl", err: "goes down: write {2..5}"},
		{pattern: "train-{0..99999999}.jsonl", err: "stands for more than"},
		{pattern: "{0..2000}/{0..2000}.jsonl", err: "stands for more than"},
		{pattern: "train-{0..99999999999}.jsonl", err: "too large"},
		{pattern: "train-[0.jsonl", err: "malformed"},
	}
	w := newWorld(t)
	for _, path := range tree {
		w.write(path, lines)
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			found, err := w.find(filepath.Join(w.dir, tt.pattern), spec.Format{Name: "auto"})
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, found.Shards, tt.want)
			require.Equal(t, tt.first, found.Shards[0].Object.Path)
			real, err := filepath.EvalSymlinks(filepath.Join(w.dir, tt.root))
			require.NoError(t, err)
			require.Equal(t, real, w.target.Root())
		})
	}
}

func TestFindsSingleFileAndLinkToDirectory(t *testing.T) {
	w := newWorld(t)
	w.write("sub/a.jsonl", linesOf(3, "a"))
	w.write("sub/b.jsonl", linesOf(3, "b"))
	find := func(path string) []string {
		found, err := w.find(path, spec.Format{Name: "auto"})
		require.NoError(t, err)
		return paths(found)
	}
	require.Equal(t, []string{"b.jsonl"}, find(filepath.Join(w.dir, "sub/b.jsonl")))
	link := filepath.Join(w.dir, "link")
	require.NoError(t, os.Symlink("sub", link))
	require.Equal(t, []string{"a.jsonl", "b.jsonl"}, find(link))
	require.Equal(t, "sub", filepath.Base(w.target.Root()))
}

func TestFormatDefaultsAreFilledIn(t *testing.T) {
	w := newWorld(t)
	w.write("a.bin", make([]byte, 100))
	found, err := w.find(w.dir, spec.Format{Name: "fixed", RecordBytes: 10})
	require.NoError(t, err)
	require.Equal(t, spec.Format{Name: "fixed", RecordBytes: 10, StrideBytes: 10, Remainder: spec.RemainderCorrupt}, found.Format)
	require.Equal(t, ".bin", found.StreamExtension)
}
