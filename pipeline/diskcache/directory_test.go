package diskcache

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignDirectoriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(dir string) error
		reason string // "" if it is accepted
		root   bool
	}{
		"nothing":                {make: func(string) error { return nil }},
		"empty":                  {make: func(d string) error { return os.Mkdir(d, 0o700) }},
		"only for us, read-only": {make: func(d string) error { return os.Mkdir(d, 0o500) }},
		"for a group":            {func(d string) error { return os.Mkdir(d, 0o750) }, "others may use it (mode 0750)", false},
		"for all":                {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o777)) }, "others may use it (mode 0777)", false},
		"a stranger's":           {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chown(d, 12345, 12345)) }, "it belongs to user 12345", true},
		"a link":                 {func(d string) error { return errors.Join(os.Mkdir(d+"x", 0o700), os.Symlink(d+"x", d)) }, "links are not followed", false},
		"a file":                 {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "not a directory", false},
		"with files": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/thesis.tex", nil, 0o600))
		}, `not empty (it has "thesis.tex")`, false},
		"with a store but no tag": {func(d string) error { return os.MkdirAll(d+"/v1", 0o700) }, `not empty (it has "v1")`, false},
		"another program's cache": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/"+tagName, []byte("Signature: 8a477f597d28d172789f06886806bc55\n# pip\n"), 0o600))
		}, "another program's cache", false},
		"with a tag that is empty": {make: func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.WriteFile(d+"/"+tagName, nil, 0o600)) }},
		"with a store for all": {func(d string) error {
			return errors.Join(os.MkdirAll(d+"/v1", 0o700), os.Chmod(d+"/v1", 0o777), os.WriteFile(d+"/"+tagName, []byte(tagText), 0o600))
		}, "v1: others may use it", false},
		"with a store that is link": {func(d string) error {
			return errors.Join(os.Mkdir(d, 0o700), os.Symlink("/tmp", d+"/v1"), os.WriteFile(d+"/"+tagName, []byte(tagText), 0o600))
		}, "v1:", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root {
				privileged(t, "giving files away")
			}
			dir := filepath.Join(t.TempDir(), "below", "cache")
			require.NoError(t, os.Mkdir(filepath.Dir(dir), 0o755))
			require.NoError(t, c.make(dir))
			if name == "only for us, read-only" && os.Geteuid() != 0 {
				c.reason = "permission denied"
			}
			d, err := openDirectory(kernel{}, dir, slog.New(slog.DiscardHandler))
			if c.reason != "" {
				require.ErrorContains(t, err, dir)
				require.ErrorContains(t, err, c.reason)
				return
			}
			require.NoError(t, err)
			require.True(t, d.punches)
			d.close()
			tag, err := os.ReadFile(filepath.Join(dir, tagName))
			require.NoError(t, err)
			require.Equal(t, tagText, string(tag))
			info, err := os.Stat(filepath.Join(dir, storeName))
			require.NoError(t, err)
			require.Equal(t, os.ModeDir|0o700, info.Mode())
			names, err := os.ReadDir(filepath.Join(dir, storeName))
			require.NoError(t, err)
			require.Empty(t, names, "nothing is left of what was tried")
		})
	}
}

func TestConfigReportsAllProblemsAtOnce(t *testing.T) {
	err := (&Config{ShareBytes: -1, ReserveBytes: -1, MaxReadBytes: 5000, GapBytes: -1}).Validate()
	for _, what := range []string{"dir", "below", "engine", "identify", "bound", "share", "reserve", "buffer", "max_read", "gap", "max_files"} {
		require.ErrorContains(t, err, what)
	}
}

func TestParseSizeAcceptsUserNotation(t *testing.T) {
	for text, want := range map[string]Size{
		"auto": {}, "": {}, "off": {Off: true}, "30%": {Percent: 30}, "0.5 %": {Percent: 0.5}, "100%": {Percent: 100},
		"200GiB": {Bytes: 200 << 30}, "1.5TB": {Bytes: 1_500_000_000_000}, "4096": {Bytes: 4096},
	} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := ParseSize(got.String())
		require.NoError(t, err, text)
		require.Equal(t, want.Off, again.Off, text)
	}
	for _, text := range []string{"0", "-1", "0%", "101%", "%", "NaN%", "much", "OFF ", "99999999999EiB"} {
		_, err := ParseSize(text)
		require.ErrorContains(t, err, text)
	}
}

func TestBound(t *testing.T) {
	const gib = 1 << 30
	dataset := Place{DatasetBytes: 100 * gib, Objects: 100, OpenBytes: 3 * gib, TotalBytes: 1000 * gib, FreeBytes: 500 * gib}
	roomy := dataset.NeedBytes() + dataset.NeedBytes()/64 + 64<<20
	less := func(change func(*Place)) Place {
		p := dataset
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		size Size
		in   Place
		want int64
	}{
		"off is none":                             {Size{Off: true}, dataset, 0},
		"bytes are taken as they are":             {Size{Bytes: 5}, dataset, 5},
		"a percentage is of the file system":      {Size{Percent: 30}, dataset, 300 * gib},
		"auto holds the dataset":                  {Size{}, dataset, roomy},
		"beside what there is":                    {Size{}, less(func(p *Place) { p.CacheBytes = 40 * gib }), roomy + 40*gib},
		"or takes half of what is free":           {Size{}, less(func(p *Place) { p.FreeBytes = 60 * gib }), 30 * gib},
		"where what the cache has counts as free": {Size{}, less(func(p *Place) { p.FreeBytes, p.CacheBytes = 60*gib, 40*gib }), 50 * gib},
		"a container's storage is spared":         {Size{}, less(func(p *Place) { p.Ephemeral = true }), 3*gib + 3*gib/4},
		"but for 1 GiB":                           {Size{}, less(func(p *Place) { p.Ephemeral, p.OpenBytes = true, 0 }), gib},
		"unless that is more than half":           {Size{}, less(func(p *Place) { p.Ephemeral, p.FreeBytes = true, gib }), gib / 2},
	} {
		require.Equal(t, c.want, c.size.Bound(c.in), name)
	}
	require.EqualValues(t, 10, Reserve(100))
	require.EqualValues(t, 20*gib, Reserve(1000*gib))
}

// The result is compared with what a cache really takes.
func TestNeedHoldsDataset(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 3<<20+1), "b": random(2, 5), "c": random(3, 1<<20)})
	s := w.open(nil)
	for path, content := range w.files {
		w.read(s, path, 0, len(content))
	}
	p := Place{DatasetBytes: 4<<20 + 6, Objects: 3}
	require.LessOrEqual(t, w.blocks(), p.NeedBytes())
	require.Greater(t, w.blocks(), p.NeedBytes()*9/10)
}

func TestSurvey(t *testing.T) {
	w := newWorld(t, map[string][]byte{"a": random(1, 3<<20)})
	before, err := Survey(w.cache)
	require.NoError(t, err)
	require.Greater(t, before.TotalBytes, before.FreeBytes)
	require.Zero(t, before.CacheBytes)
	require.NoDirExists(t, w.cache)
	w.read(w.open(nil), "a", 0, 3<<20)
	var after Place
	waitFor(t, func() bool { // a file system may choose other blocks for what it writes out meanwhile
		blocks := w.blocks()
		after, err = Survey(w.cache)
		return err != nil || blocks == after.CacheBytes && blocks > 3<<20
	})
	require.NoError(t, err)
	require.Equal(t, before.TotalBytes, after.TotalBytes)

	require.NoError(t, os.Chmod(w.cache, 0o755))
	_, err = Survey(w.cache)
	require.ErrorContains(t, err, "others may use it")

	// A process was killed between creating the tag and writing it.
	require.NoError(t, os.Chmod(w.cache, 0o700))
	require.NoError(t, os.Truncate(filepath.Join(w.cache, tagName), 0))
	begun, err := Survey(w.cache)
	require.NoError(t, err)
	require.Equal(t, before.TotalBytes, begun.TotalBytes)

	memory, err := Survey(filepath.Join(tmpfs(t, "size=8m,mode=0700"), "not", "there"))
	require.NoError(t, err)
	require.EqualValues(t, 8<<20, memory.TotalBytes)
	require.True(t, memory.Ephemeral)
}
