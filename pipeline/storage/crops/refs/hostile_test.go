package refs

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestReferencesOutsideOfTheRootAreRefused(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "data")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "in"), 0o755))
	for _, path := range []string{filepath.Join(top, "secret"), filepath.Join(top, "database"), filepath.Join(dir, "in", "a.nc")} {
		require.NoError(t, os.WriteFile(path, []byte("0123456789"), 0o644))
	}
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "link")))
	roots := Config{One: "x.json", Roots: []string{dir, "https://host/data"}}
	for name, want := range map[string]string{
		"../secret": "not a file below the dataset's directory", "in/../../secret": "not a file below", "/etc/passwd": "not a file below",
		"file:///etc/passwd": "not a file below", "file://in/a.nc": "not a file below", dir + "/../secret": "not a file below", top + "/database": "not a file below",
		".": "not a file below", "": "not a file below", "a\x00b": "not a file below", "s3://bucket/key": "bucket or web server", "https://host/other": "bucket or web server",
		"https://host/data/a?x": "without a query", "https://host/data/%zz": "without a query", "https://host/data/%2e%2e/x": "not a file below",
		"https://host/database": "bucket or web server", "zip://a::b.zip": "files in files", "simplecache::x": "files in files",
	} {
		writeJSON(t, dir, map[string]any{"a/0": []any{name, 0, 4}})
		err := over(t, dir, roots).List(t.Context(), everything, func(storage.Object) error { return nil })
		require.ErrorContains(t, err, want, name)
		require.ErrorContains(t, err, "x.json", name)
	}
	for _, name := range []string{"in/a.nc", "./in//a.nc", "in/../in/a.nc", dir + "/in/a.nc", "file://" + dir + "/in/a.nc", "https://host/data/in/a.nc", "https://host/data/in/%61.nc", "link"} {
		writeJSON(t, dir, map[string]any{"a/0": []any{name, 3, 4}})
		s := over(t, dir, roots)
		b, err := bytesOf(t, s, listed(t, s)["x.json/a/0"])
		require.NoError(t, err, name)
		require.Equal(t, "3456", string(b), name)
	}
}

func TestRangesOutsideFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.nc"), []byte("0123456789"), 0o644))
	for place, want := range map[[2]int64]string{
		{8, 3}: "it refers to bytes [8, 11) of a.nc, which has 10", {11, 0}: "[11, 11)", {1 << 62, 1 << 61}: "of a.nc, which has 10",
		{1<<63 - 1, 1}: "there is no range of 1 bytes at 9223372036854775807", {-1, 1}: "not a number of bytes", {1, -1}: "not a number of bytes",
	} {
		writeJSON(t, dir, map[string]any{"a/0": []any{"a.nc", place[0], place[1]}})
		s := over(t, dir, Config{One: "x.json"})
		require.ErrorContains(t, s.List(t.Context(), everything, func(storage.Object) error { return nil }), want)
		_, err := s.Stat(t.Context(), "x.json/a/0")
		require.ErrorContains(t, err, want)
	}
}

func TestCompressedMembersAreRefused(t *testing.T) {
	dir := t.TempDir()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	m, err := w.Create("a/0") // deflate
	require.NoError(t, err)
	_, err = m.Write(make([]byte, 1000))
	require.NoError(t, err)
	m, err = w.CreateHeader(&zip.FileHeader{Name: "a/1"})
	require.NoError(t, err)
	_, err = m.Write([]byte("plain"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.zip"), b.Bytes(), 0o644))
	s := over(t, dir, Config{One: "x.zip"})
	err = s.List(t.Context(), everything, func(storage.Object) error { return nil })
	require.ErrorContains(t, err, "x.zip/a/0 is compressed in the zip file (deflate)")
	o, err := s.Stat(t.Context(), "x.zip/a/1")
	require.NoError(t, err)
	got, err := bytesOf(t, s, o)
	require.NoError(t, err)
	require.Equal(t, "plain", string(got))
}

// Bytes of a member that don't match its checksum are an error if all of them are read at once,
// from memory or from disk. Parts of a member can't be checked.
func TestDamagedMemberIsNamed(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789"), 10)
	writeZip(t, dir, map[string][]byte{"a/0": content, "a/1": bytes.ToUpper(content)})
	path := filepath.Join(dir, "x.zip")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[bytes.Index(b, content)+50] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o644))
	s := over(t, dir, Config{One: "x.zip"})
	objects := listed(t, s)
	want := "its bytes have the CRC-32 "
	_, err = bytesOf(t, s, objects["x.zip/a/0"])
	require.ErrorContains(t, err, "x.zip/a/0: bytes [0, 100): "+want)
	require.ErrorContains(t, err, " in the directory of x.zip")
	require.ErrorContains(t, err, "copy it again")
	got, err := bytesOf(t, s, objects["x.zip/a/1"])
	require.NoError(t, err)
	require.Equal(t, content, got)
	part := make([]byte, 99)
	require.NoError(t, storage.ReadAt(t.Context(), s, objects["x.zip/a/0"], part, 1))

	r, err := s.OpenResident(objects["x.zip/a/0"])
	require.NoError(t, err)
	require.NotNil(t, r)
	require.True(t, r.ReadAt(part, 1), "it is in memory")
	require.False(t, r.ReadAt(make([]byte, 100), 0))
	require.NoError(t, r.Close())
	r, err = s.OpenResident(objects["x.zip/a/1"])
	require.NoError(t, err)
	require.True(t, r.ReadAt(make([]byte, 100), 0))
	require.NoError(t, r.Close())
}

func TestTotalReferenceSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	var refs []string
	for i := range 100 {
		refs = append(refs, fmt.Sprintf(`"a/%d": "%s"`, i, strings.Repeat("x", 100)))
	}
	for i := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte("{"+strings.Join(refs, ",")+"}"), 0o644))
	}
	s := over(t, dir, Config{Match: everything})
	s.maxHeld = 60_000
	err := s.List(t.Context(), everything, func(storage.Object) error { return nil })
	require.ErrorContains(t, err, `2.json: key "a/`)
	require.ErrorContains(t, err, ": half of --memory has no more room: raise --memory, or write the arrays in larger chunks; or name fewer of these files by a pattern: those before it take ")
	require.LessOrEqual(t, s.HeldBytes(), s.maxHeld)

	s = over(t, dir, Config{Match: everything})
	s.maxHeld = 300
	err = s.List(t.Context(), everything, func(storage.Object) error { return nil })
	require.ErrorContains(t, err, "0.json: key \"a/0\": at byte 84: a value has more than 75 bytes, which is an eighth of --memory: raise that")
}

// Whatever file a reference file names, the result is below the root.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a/b.nc", "../a", "/data/x", "file:///data/../x", "https://host/data/%2e%2e/x", "a/../../x", "s3://b/../..", "//data/x"} {
		f.Add("in/x.json", seed)
	}
	f.Fuzz(func(t *testing.T, from, name string) {
		if !filepath.IsLocal(from) {
			return
		}
		c := Config{Roots: []string{"/data", "https://host/data", "/"}}
		if at, err := c.resolve(from, name); err == nil && (!filepath.IsLocal(at) || at != filepath.Clean(at) || strings.ContainsRune(at, 0)) {
			t.Fatalf("%q in %q is %q", name, from, at)
		}
	})
}

func TestFileDescribingNothingIsNamed(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"x.json": "[]", "y.json": "{", "x.zip": "PK", "y.zip": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
		s := over(t, dir, Config{One: name})
		_, err := s.Stat(t.Context(), name+"/.zarray")
		require.ErrorContains(t, err, name+": ")
		require.ErrorContains(t, s.List(t.Context(), everything, func(storage.Object) error { return nil }), name+": ")
	}
	_, err := over(t, dir, Config{One: "z.json"}).Stat(t.Context(), "z.json/.zarray")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
