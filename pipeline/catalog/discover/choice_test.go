package discover

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

var auto = spec.Format{Name: "auto"}

func (w *world) link(to, path string) {
	full := filepath.Join(w.dir, path)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(w.t, os.Symlink(to, full))
}

func TestExcludeLeavesOut(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patterns []string
		want     []string
		err      string
	}{
		{"a name at any depth", []string{"val.jsonl"}, []string{"old/deep/t.jsonl", "old/t.jsonl", "t-0.jsonl", "t-1.jsonl"}, ""},
		{"a directory, and all below it", []string{"old", "val*"}, []string{"t-0.jsonl", "t-1.jsonl"}, ""},
		{"with a slash behind it", []string{"old/", "val*"}, []string{"t-0.jsonl", "t-1.jsonl"}, ""},
		{"an asterisk stays within a name", []string{"old/*.jsonl"}, []string{"old/deep/t.jsonl", "old/deep/val.jsonl", "t-0.jsonl", "t-1.jsonl", "val.jsonl"}, ""},
		{"two cross directories", []string{"old/**/t.jsonl", "val*"}, []string{"t-0.jsonl", "t-1.jsonl"}, ""},
		{"ranges and alternatives", []string{"t-{1..3}.jsonl", "{old,val.jsonl}"}, []string{"t-0.jsonl"}, ""},
		{"from the root alone", []string{"./t-0.jsonl", "old", "val*"}, []string{"t-1.jsonl"}, ""},
		{"an absolute path", []string{"/t-0.jsonl"}, nil, "relative to the dataset"},
		{"nothing", []string{""}, nil, "is empty"},
		{"what is not well formed", []string{"a[b"}, nil, "malformed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			for _, path := range []string{"t-0.jsonl", "t-1.jsonl", "val.jsonl", "old/t.jsonl", "old/deep/t.jsonl", "old/deep/val.jsonl"} {
				w.write(path, linesOf(1, path))
			}
			if tt.err != "" {
				require.ErrorContains(t, ExcludeError(tt.patterns[0]), tt.err)
				return
			}
			w.exclude = tt.patterns
			found, err := w.find(w.dir, auto)
			require.NoError(t, err)
			require.Equal(t, tt.want, paths(found))
			require.NotZero(t, found.Selection.LeftOut)
			require.Contains(t, found.Selection.FirstLeft[0].Reason, "--exclude")
			text := w.target.Text()
			require.NoError(t, w.target.Exclude(nil))
			require.NotEqual(t, text, w.target.Text(), "another dataset has another index")
		})
	}
}

// A file that a pattern names and --exclude leaves out is not missing. If it is left out for
// another reason, the error contains that.
func TestExcludedFileNamedByPatternIsNotMissing(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"t-0.jsonl", "t-1.jsonl", "t-2.jsonl", "parts.jsonl/x.jsonl", "of-0-a.jsonl", "of-1-b.jsonl"} {
		w.write(path, linesOf(1, path))
	}
	require.NoError(t, unix.Mkfifo(filepath.Join(w.dir, "t-3.jsonl"), 0o644))
	w.link("/dev/zero", "t-4.jsonl")
	for _, tt := range []struct {
		pattern string
		exclude []string
		want    []string
		left    string
		err     string
	}{
		{"t-{0..2}.jsonl", []string{"t-1*"}, []string{"t-0.jsonl", "t-2.jsonl"}, "t-1.jsonl", ""},
		{"{t-0,t-1}.jsonl", []string{"t-1.jsonl"}, []string{"t-0.jsonl"}, "t-1.jsonl", ""},
		{"of-{0..1}-*.jsonl", []string{"of-1-b.jsonl"}, []string{"of-0-a.jsonl"}, "of-1-b.jsonl", ""},
		{"t-*.jsonl", nil, []string{"t-0.jsonl", "t-1.jsonl", "t-2.jsonl"}, "t-3.jsonl", ""},
		{"[pt]*.jsonl", []string{"t-[1-4]*"}, []string{"t-0.jsonl"}, "parts.jsonl/", ""},
		{"t-{0..3}.jsonl", nil, nil, "", "t-3.jsonl is named by the pattern but is not a shard: it is a pipe, a socket or a device"},
		{"t-{0..4}.jsonl", []string{"t-3.jsonl"}, nil, "", "t-4.jsonl is named by the pattern but is not a shard: it is a pipe, a socket or a device"},
		{"{t-0,parts}.jsonl", nil, nil, "", "parts.jsonl is named by the pattern but is not a shard: it is a directory: name the files in it, such as DIRECTORY/**"},
		{"t-{0..5}.jsonl", []string{"t-[34]*"}, nil, "", "t-5.jsonl is missing"},
		{"t-*", []string{"t*"}, nil, "", "matches no files except those that are left out, such as t-0.jsonl (--exclude t*): check the path, and --exclude"},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			w.exclude = tt.exclude
			found, err := w.find(filepath.Join(w.dir, tt.pattern), auto)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, paths(found))
			require.True(t, slices.ContainsFunc(found.Selection.FirstLeft, func(v Verdict) bool { return v.Path == tt.left }), "%v", found.Selection.FirstLeft)
			require.Empty(t, found.Selection.Notes)
		})
	}
	w.exclude = []string{"t-[34]*", "parts*"}
	found, err := w.find(w.dir, auto)
	require.NoError(t, err)
	require.Equal(t, []string{"of-0-a.jsonl", "of-1-b.jsonl", "t-0.jsonl", "t-1.jsonl", "t-2.jsonl"}, paths(found))
}

// Pipes and devices in a directory are reported as left out. Alternatives of a pattern and patterns
// of --exclude that match nothing are reported in a note.
func TestUnmatchedSelectionsAreReported(t *testing.T) {
	w := newWorld(t)
	w.write("data/t-0.jsonl", linesOf(1, "a"))
	require.NoError(t, unix.Mkfifo(filepath.Join(w.dir, "data/t-1.jsonl"), 0o644))
	w.exclude = []string{"data/t-0.jsonl", "t-1*"}
	found, err := w.find(filepath.Join(w.dir, "data"), auto)
	require.NoError(t, err)
	require.Equal(t, 1, found.Selection.LeftOut)
	require.Equal(t, []string{"--exclude data/t-0.jsonl leaves out nothing: patterns are relative to the dataset, and each needs its own --exclude"}, found.Selection.Notes)

	w.exclude = nil
	found, err = w.find(filepath.Join(w.dir, "data"), auto)
	require.NoError(t, err)
	require.Equal(t, []Verdict{{Path: "t-1.jsonl", Reason: "it is a pipe, a socket or a device"}}, found.Selection.FirstLeft)
	found, err = w.find(filepath.Join(w.dir, "data/{t,s}-*.jsonl"), auto)
	require.NoError(t, err)
	require.Len(t, found.Selection.Notes, 1)
	require.Contains(t, found.Selection.Notes[0], "nothing matches s-*.jsonl")

	w.exclude = []string{"t-0*"}
	found, err = w.find(filepath.Join(w.dir, "data/t-0.jsonl"), auto)
	require.NoError(t, err)
	require.Contains(t, found.Selection.Notes[0], "--exclude t-0* leaves out nothing")
}

func TestLinksToDirectoriesAreFollowed(t *testing.T) {
	w := newWorld(t)
	w.write("disk0/0.jsonl", linesOf(1, "a"))
	w.write("disk1/sub/1.jsonl", linesOf(1, "b"))
	w.write("joined/c.jsonl", linesOf(1, "c"))
	w.link("../disk0", "joined/d0")
	w.link("../disk1", "joined/d1")
	w.link("..", "joined/d1x") // leads back: its target is above it
	require.NoError(t, os.Remove(filepath.Join(w.dir, "joined/d1x")))
	w.link(".", "joined/self")
	for target, want := range map[string][]string{
		"joined": {"c.jsonl", "d0/0.jsonl", "d1/sub/1.jsonl"}, "joined/*/*.jsonl": {"d0/0.jsonl"}, "joined/**/*.jsonl": {"c.jsonl", "d0/0.jsonl", "d1/sub/1.jsonl"},
	} {
		found, err := w.find(filepath.Join(w.dir, target), auto)
		require.NoError(t, err, target)
		require.Equal(t, want, paths(found), target)
	}
	found, err := w.find(filepath.Join(w.dir, "joined"), auto)
	require.NoError(t, err)
	require.Equal(t, "self/", found.Selection.FirstLeft[0].Path)
	require.Contains(t, found.Selection.FirstLeft[0].Reason, "leads back")

	w.link("../gone", "joined/d2")
	for _, target := range []string{"joined", "joined/*/*.jsonl"} { // a disk that is not mounted
		_, err = w.find(filepath.Join(w.dir, target), auto)
		require.ErrorContains(t, err, "d2", target)
	}
	_, err = w.find(filepath.Join(w.dir, "joined/*.jsonl"), auto)
	require.NoError(t, err, "the pattern does not name it")
	w.exclude = []string{"d2"}
	found, err = w.find(filepath.Join(w.dir, "joined"), auto)
	require.NoError(t, err)
	require.Equal(t, Verdict{Path: "d2", Reason: "--exclude d2"}, found.Selection.FirstLeft[0])
}

func TestOneFileByTwoNames(t *testing.T) {
	t.Run("a link to a shard", func(t *testing.T) {
		w := newWorld(t)
		w.write("1.jsonl", linesOf(1, "a"))
		w.link("1.jsonl", "latest.jsonl")
		_, err := w.find(w.dir, auto)
		require.ErrorContains(t, err, "1.jsonl and latest.jsonl")
	})
	t.Run("a directory by two links", func(t *testing.T) {
		w := newWorld(t)
		w.write("disk/1.jsonl", linesOf(1, "a"))
		w.link("../disk", "d/a")
		w.link("../disk", "d/b")
		_, err := w.find(filepath.Join(w.dir, "d"), auto)
		require.ErrorContains(t, err, "a/1.jsonl and b/1.jsonl")
	})
	t.Run("two files that are alike are two", func(t *testing.T) {
		w := newWorld(t)
		w.write("1.jsonl", linesOf(1, "a"))
		w.write("2.jsonl", linesOf(1, "a"))
		_, err := w.find(w.dir, auto)
		require.NoError(t, err)
	})
	t.Run("the blobs of a hub's cache are left out", func(t *testing.T) {
		w := newWorld(t)
		for _, i := range []string{"0", "1"} {
			w.write("blobs/"+i+i, linesOf(1, i))
			w.link("../../blobs/"+i+i, "snapshots/abc/train-"+i+".jsonl")
		}
		found, err := w.find(w.dir, auto)
		require.NoError(t, err)
		require.Equal(t, []string{"snapshots/abc/train-0.jsonl", "snapshots/abc/train-1.jsonl"}, paths(found))
		require.Equal(t, otherName, found.Selection.FirstLeft[0].Reason)
	})
}

func TestIncludedAndExcludedFilesAreReported(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"train-00000.jsonl", "train-00001.jsonl", "train-00002.jsonl"} {
		w.write(path, linesOf(1, path))
	}
	w.write("README.md", []byte("words"))
	w.write("notes.json", linesOf(1, "x"))
	w.write(".git/config", []byte("x"))
	w.write("_logs/x.jsonl", linesOf(1, "y"))
	w.files = true
	found, err := w.find(w.dir, auto)
	require.NoError(t, err)
	s := &found.Selection
	require.Equal(t, "train-{00000..00002}.jsonl, 3 shards", s.TakenText())
	require.Equal(t, "4 files: .git/, README.md, _logs/, …", s.LeftOutText())
	require.Equal(t, []Verdict{
		{".git/", false, "its name begins with a dot"}, {"README.md", false, noName}, {"_logs/", false, beginsWithLine}, {"notes.json", false, noName},
		{"train-00000.jsonl", true, byItsName}, {"train-00001.jsonl", true, byItsName}, {"train-00002.jsonl", true, byItsName},
	}, s.Files)
	require.Empty(t, s.Notes)
}

func TestNamingText(t *testing.T) {
	for want, paths := range map[string][]string{
		"a.tar":                       {"a.tar"},
		"d7/s-{9..11}.tar":            {"d7/s-10.tar", "d7/s-11.tar", "d7/s-9.tar"},
		"d7/s-{{1..2},12}.tar":        {"d7/s-1.tar", "d7/s-12.tar", "d7/s-2.tar"},
		"{2018,2020}.zarr":            {"2018.zarr", "2020.zarr"},
		"part-{00000,00003}-of-00004": {"part-00000-of-00004", "part-00003-of-00004"},
		"s-{0,2,{4..5},7}":            {"s-0", "s-2", "s-4", "s-5", "s-7"},
		"s-{0,2,…,8}":                 {"s-0", "s-2", "s-4", "s-6", "s-8"},
		"s-{9,010}":                   {"s-010", "s-9"},
		"{0..1}-{08..09}.tar":         {"0-08.tar", "0-09.tar", "1-08.tar", "1-09.tar"},
		"0-9.tar … 2-09.tar":          {"0-9.tar", "1-08.tar", "2-09.tar"},
		"s-{8,99999999999999999999}":  {"s-8", "s-99999999999999999999"},
	} {
		require.Equal(t, want, NamingText(paths))
	}
	require.Equal(t, NamingOf("a/p-1.json"), NamingOf("a/p-222.json"))
	require.NotEqual(t, NamingOf("a/p-1.json"), NamingOf("a1/p-1.json"))
	require.NotEqual(t, NamingOf("p1.json"), NamingOf("p.json"))
}

func TestPairsOfArraysBelongTogether(t *testing.T) {
	for _, tt := range []struct {
		x, y, a, b string
		want       bool
	}{
		{"x-*.npy", "y-*.npy", "x-3.npy", "y-3.npy", true},
		{"x-*.npy", "y-*.npy", "x-3.npy", "y-2.npy", false},
		{"x-*.npy", "y-*.npy", "x-3.npy", "y-03.npy", true},
		{"x-*.npy", "y-*.npy", "x-10.npy", "y-02.npy", false},
		{"x/*.npy", "y/*.npy", "x/img-07.npy", "y/label-7.npy", true},
		{"*/x.npy", "*/y.npy", "a/x.npy", "a/y.npy", true},
		{"*/x.npy", "*/y.npy", "a/x.npy", "b/y.npy", false},
		{"*/x-*.npy", "*/y-*.npy", "1/x-2.npy", "2/y-1.npy", false},
		{"**/x-?.npy", "**/y-?.npy", "d/e/x-1.npy", "d/e/y-2.npy", false},
		{"x-{1..12}.npy", "y-{01..12}.npy", "x-10.npy", "y-02.npy", false},
		{"{a,b}/x-*.npy", "{c,d}/y-*.npy", "a/x-1.npy", "c/y-1.npy", true},
		{"x-[0-9].npy", "y-[0-9].npy", "x-1.npy", "y-2.npy", false},
		{"x-*-*.npy", "y-*.npy", "x-1-2.npy", "y-1_2.npy", true},
		{"all.npy", "y-*.npy", "all.npy", "y-1.npy", true},
	} {
		x, err := parsePattern(tt.x)
		require.NoError(t, err)
		y, err := parsePattern(tt.y)
		require.NoError(t, err)
		require.Equal(t, tt.want, belong(newWildcards(x).in(tt.a), newWildcards(y).in(tt.b)), "%+v", tt)
	}
}
