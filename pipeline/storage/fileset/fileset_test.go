package fileset

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

func TestMain(m *testing.M) {
	backing.Main()
	goleak.VerifyTestMain(m)
}

// bare adds nothing to contents: an object is its files, one after another.
type bare struct{}

func (bare) HeaderBytes(int, int64) int64               { return 0 }
func (bare) AppendHeader(dst, _ []byte, _ int64) []byte { return dst }
func (bare) AlignBytes() int64                          { return 1 }

// Each object of the suite is a directory whose files contain its bytes.
func TestSuite(t *testing.T) {
	for _, fileBytes := range []int{1 << 30, 9000} {
		t.Run(fmt.Sprintf("files of up to %d bytes", fileBytes), func(t *testing.T) { suite(t, fileBytes, false) })
		t.Run(fmt.Sprintf("files of up to %d bytes, where the kernel can't say what is in memory", fileBytes), func(t *testing.T) { suite(t, fileBytes, true) })
	}
}

func suite(t *testing.T, fileBytes int, blind bool) {
	storagetest.Run(t, func(t *testing.T, objects map[string][]byte) storage.Storage {
		root := t.TempDir()
		for path, content := range objects {
			for i := 0; i == 0 || i*fileBytes < len(content); i++ {
				part := content[i*fileBytes : min((i+1)*fileBytes, len(content))]
				write(t, root, fmt.Sprintf("%s/%06d", path, i), part)
			}
		}
		s := open(t, root, bare{})
		s.blind.Store(blind)
		return s
	})
}

func write(t require.TestingT, root, path string, content []byte) {
	full := filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
	require.NoError(t, os.WriteFile(full, content, 0o600))
}

func open(t *testing.T, root string, framing Framing) *Storage {
	s, err := Open(root, t.TempDir(), framing)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func list(t require.TestingT, s *Storage) map[string]storage.Object {
	objects := map[string]storage.Object{}
	require.NoError(t, s.List(background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		objects[o.Path] = o
		return nil
	}))
	return objects
}

// archive returns the object of a directory, assembled as pipeline/format/FILES.md specifies, and
// the same with zeros in place of contents.
func archive(files map[string][]byte, framing Framing) (whole, hollow []byte) {
	for _, path := range slices.SortedFunc(maps.Keys(files), func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) }) {
		content := files[path]
		whole = framing.AppendHeader(whole, []byte(path), int64(len(content)))
		hollow = framing.AppendHeader(hollow, []byte(path), int64(len(content)))
		whole = append(whole, content...)
		whole = append(whole, make([]byte, -len(content)&511)...)
		hollow = append(hollow, make([]byte, len(whole)-len(hollow))...)
	}
	return whole, hollow
}

func TestAnyRangesOfAnyDirectoriesEqualNaiveArchive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "folders")
		require.NoError(t, err)
		defer os.RemoveAll(root)
		directories := drawDirectories(t, root)
		s, err := Open(root, root, tar.FileFraming{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		objects := list(t, s)
		require.Len(t, objects, len(directories))
		for path, contents := range directories {
			whole, hollow := archive(contents, tar.FileFraming{})
			o := objects[path]
			require.EqualValues(t, len(whole), o.SizeBytes, path)
			again, err := s.Stat(background(), path)
			require.NoError(t, err)
			require.Equal(t, o, again)
			requireRanges(t, s, o, whole)
			requireOutline(t, s, o, hollow)
		}
	})
}

func drawDirectories(t *rapid.T, root string) map[string]map[string][]byte {
	name := rapid.StringOfN(rapid.RuneFrom([]rune("ab.é\n 数-")), 1, 8, -1)
	directories := map[string]map[string][]byte{}
	for range rapid.IntRange(1, 3).Draw(t, "directories") {
		path := "."
		for range rapid.IntRange(0, 3).Draw(t, "levels") {
			path = filepath.Join(path, "d"+name.Draw(t, "directory"))
		}
		for range rapid.IntRange(1, 12).Draw(t, "files") {
			n := name.Draw(t, "name")
			if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
				n = strings.Repeat("l", 150) + n
			}
			content := bytes.Repeat([]byte{byte(len(n))}, rapid.SampledFrom([]int{0, 1, 511, 512, 513, 5000}).Draw(t, "bytes"))
			full := filepath.Join(path, n)
			if n == "." || n == ".." {
				continue
			}
			write(t, root, full, content)
			if strings.HasPrefix(n, ".") {
				continue
			}
			if directories[path] == nil {
				directories[path] = map[string][]byte{}
			}
			directories[path][full] = content
		}
	}
	return directories
}

func requireRanges(t require.TestingT, s *Storage, o storage.Object, want []byte) {
	random := rand.New(rand.NewPCG(uint64(len(want)), 1))
	for range 10 {
		off := random.Int64N(o.SizeBytes)
		p := make([]byte, 1+random.Int64N(min(o.SizeBytes-off, 20000)))
		require.NoError(t, storage.ReadAt(background(), s, o, p, off))
		require.True(t, bytes.Equal(want[off:off+int64(len(p))], p), "%s: %d bytes at %d", o.Path, len(p), off)
	}
}

func requireOutline(t require.TestingT, s *Storage, o storage.Object, want []byte) {
	x, err := s.Outline(o)
	require.NoError(t, err)
	got, err := io.ReadAll(io.NewSectionReader(x, 0, 1<<40))
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got), o.Path)
	random := rand.New(rand.NewPCG(uint64(len(want)), 2))
	for range 20 {
		off := random.Int64N(o.SizeBytes)
		p := bytes.Repeat([]byte{1}, 1+int(random.Int64N(2000)))
		n, err := x.ReadAt(p, off)
		if off+int64(len(p)) > o.SizeBytes {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.NoError(t, err)
		}
		require.True(t, bytes.Equal(want[off:off+int64(n)], p[:n]), "%s: %d bytes at %d", o.Path, n, off)
	}
}

func TestChangedFileIsNamedAndOthersAreRead(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for name, change := range map[string]func(path string) error{
		"size is 9 bytes, was 3":    func(path string) error { return os.WriteFile(path, []byte("longer xx"), 0o600) },
		"modification time differs": func(path string) error { return os.Chtimes(path, later, later) },
		"the file is gone":          os.Remove,
		"another file is in its place": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+"x", []byte("new"), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(path+"x", info.ModTime(), info.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+"x", path)
		},
		"not a regular file any more":  func(path string) error { return replace(path, func() error { return os.Mkdir(path, 0o700) }) },
		"not a regular file any more ": func(path string) error { return replace(path, func() error { return unix.Mkfifo(path, 0o600) }) },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, name := range []string{"a", "b", "c"} {
				write(t, root, "d/"+name, []byte(name+name+name))
			}
			s := open(t, root, bare{})
			o := list(t, s)["d"]
			require.NoError(t, change(filepath.Join(root, "d/b")))
			p := make([]byte, 9)
			err := storage.ReadAt(t.Context(), s, o, p, 0)
			require.ErrorIs(t, err, storage.ErrChanged)
			require.ErrorContains(t, err, "d: bytes [0, 9): d/b: "+strings.TrimSpace(name))
			for _, off := range []int64{0, 6} {
				require.NoError(t, storage.ReadAt(t.Context(), s, o, p[:3], off))
			}
			now, err := s.Stat(t.Context(), "d")
			require.NoError(t, err)
			require.NotEqual(t, o.Version, now.Version)
		})
	}
}

func replace(path string, make func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return make()
}

func TestUnreadableFileIsNamed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	root := t.TempDir()
	write(t, root, "d/a", []byte("a"))
	require.NoError(t, os.Chmod(filepath.Join(root, "d/a"), 0))
	s := open(t, root, bare{})
	err := storage.ReadAt(t.Context(), s, list(t, s)["d"], make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "d/a: open: permission denied")
}

func TestWhichFilesAreListed(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"top", "d/one", "d/.hidden", ".dots/x", "empty/below/two", "out/of"} {
		write(t, root, path, []byte(path))
	}
	require.NoError(t, os.Symlink("../d/one", filepath.Join(root, "empty/link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "d/pipe"), 0o600))
	s := open(t, root, bare{})
	objects := list(t, s)
	require.ElementsMatch(t, []string{".", "d", "empty", "empty/below", "out"}, slices.Collect(maps.Keys(objects)))
	require.EqualValues(t, len("d/one"), objects["d"].SizeBytes)
	p := make([]byte, len("d/one"))
	require.NoError(t, storage.ReadAt(t.Context(), s, objects["empty"], p, 0))
	require.Equal(t, "d/one", string(p), "links to files are followed")

	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "out/dangling")))
	err := s.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
	require.ErrorContains(t, err, "out: dangling: follow symbolic link: no such file or directory: mend or remove the link, or leave it out with --exclude")
}

func TestLinksToDirectoriesAreFollowed(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	write(t, root, "a/1", []byte("here"))
	write(t, elsewhere, "class/2", []byte("elsewhere"))
	write(t, elsewhere, "class/below/3", []byte("below"))
	for link, to := range map[string]string{
		"b": filepath.Join(elsewhere, "class"), "a/up": "..", "a/self": ".", "a/x/back": "../../a",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, link)), 0o700))
		require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
	}
	s := open(t, root, bare{})
	objects := list(t, s)
	require.ElementsMatch(t, []string{"a", "b", "b/below"}, slices.Collect(maps.Keys(objects)))
	for path, want := range map[string]string{"a": "here", "b": "elsewhere", "b/below": "below"} {
		p := make([]byte, len(want))
		require.NoError(t, storage.ReadAt(t.Context(), s, objects[path], p, 0))
		require.Equal(t, want, string(p))
		now, err := s.Stat(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, objects[path].Version, now.Version, path)
	}

	var below []string // the files of the root and of a are not wanted here
	write(t, root, "file", nil)
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "dangling")))
	wanted := func(path string, isDir bool) bool { return path == "b" || path == "b/below" || isDir && path == "." }
	require.NoError(t, s.List(t.Context(), wanted, func(o storage.Object) error {
		below = append(below, o.Path)
		return nil
	}))
	require.ElementsMatch(t, []string{"b", "b/below"}, below)

	require.NoError(t, os.Remove(filepath.Join(root, "b")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(root, "b")))
	require.ErrorContains(t, s.List(t.Context(), wanted, func(storage.Object) error { return nil }),
		"b: follow symbolic link: no such file or directory: mend or remove the link, or leave it out with --exclude")
}

func TestChangedFilesChangeVersionOfTheirDirectoryOnly(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a/1", "a/2", "b/1", "b/2", "c/1", "c/2", "d/1"} {
		write(t, root, path, []byte(path))
	}
	s := open(t, root, bare{})
	before := list(t, s)
	require.Equal(t, before, list(t, s))
	write(t, root, "a/3", nil)
	require.NoError(t, os.Remove(filepath.Join(root, "b/2")))
	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(filepath.Join(root, "c/1"), later, later))
	after := list(t, s)
	require.Equal(t, before["d"], after["d"])
	for _, changed := range []string{"a", "b", "c"} {
		require.NotEqual(t, before[changed].Version, after[changed].Version)
		err := storage.ReadAt(t.Context(), s, before[changed], make([]byte, 1), 0)
		require.ErrorIs(t, err, storage.ErrChanged, "it is not what was listed last")
		require.NoError(t, storage.ReadAt(t.Context(), s, after[changed], make([]byte, 1), 0))
	}
}

// There are fewer descriptors than goroutines that could be reading.
func TestManyFilesAreReadWithFewDescriptors(t *testing.T) {
	root := t.TempDir()
	for i := range 1000 {
		write(t, root, fmt.Sprintf("%d/%04d", i%7, i), []byte(fmt.Sprint(i)))
	}
	s := open(t, root, bare{})
	s.most = 4
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(len(open)) + 12, Max: limit.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	objects := list(t, s)
	var all sync.WaitGroup
	for _, o := range objects {
		all.Go(func() {
			p := make([]byte, o.SizeBytes)
			if err := storage.ReadAt(background(), s, o, p, 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestListingStaysInMemoryIfItsDirectoryIsUnwritable(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a", []byte("content"))
	for _, dir := range []string{"", "/proc/nowhere"} {
		s, err := Open(root, dir, bare{})
		require.NoError(t, err)
		p := make([]byte, 7)
		require.NoError(t, storage.ReadAt(t.Context(), s, list(t, s)["."], p, 0))
		require.Equal(t, "content", string(p))
		require.NoError(t, s.Close())
	}
	_, err := Open(filepath.Join(root, "a"), "", bare{})
	require.ErrorContains(t, err, "not a directory")
}

// huge has headers as large as an object may be.
type huge struct{ bare }

func (huge) HeaderBytes(int, int64) int64 { return maxObjectBytes }

func TestFilesTooLargeInTotalAreRefused(t *testing.T) {
	root := t.TempDir()
	write(t, root, "d/a", []byte("a"))
	s := open(t, root, huge{})
	err := s.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
	require.ErrorIs(t, err, errTooLarge)
	require.ErrorContains(t, err, filepath.Join(root, "d"))
}

func background() context.Context { return context.Background() }

// Reads some files at a time, as a gather does. What goroutines allocate is shared by all reads of
// a Submit.
func TestReadingAllocatesNothingPerFile(t *testing.T) {
	root := t.TempDir()
	const n = 64
	for i := range n {
		write(t, root, fmt.Sprintf("d/%06d", i), make([]byte, 700))
	}
	s := open(t, root, tar.FileFraming{})
	s.most = 1
	o := list(t, s)["d"]
	var done sync.WaitGroup
	reads := make([]*storage.Read, n)
	for i := range reads {
		reads[i] = &storage.Read{Object: o, OffsetBytes: int64(i) * o.SizeBytes / n, Buf: make([]byte, o.SizeBytes/n), Done: func(error) { done.Done() }}
	}
	allocated := testing.AllocsPerRun(100, func() {
		done.Add(n)
		s.Submit(reads)
		done.Wait()
	})
	require.Less(t, allocated, float64(n)/8)
}

// Through a link to a directory above the root, the root is reached once more.
func TestLinkAboveRootDoesNotDuplicateRoot(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	write(t, root, "a/1", []byte("x"))
	write(t, root, "../beside/2", []byte("x"))
	require.NoError(t, os.Symlink("..", filepath.Join(root, "above")))
	s := open(t, root, bare{})
	require.ElementsMatch(t, []string{"a", "above/beside"}, slices.Collect(maps.Keys(list(t, s))))
	require.Equal(t, []storage.Omission{{Path: "above/root/", Reason: storage.OmittedLoop}}, s.Omitted())
}

// Directories that all link to each other have as many paths as there are orderings of them.
func TestLinksThatCrossAreAnError(t *testing.T) {
	root := t.TempDir()
	const n = 12
	for i := range n {
		dir := fmt.Sprintf("%02d", i)
		write(t, root, dir+"/a", []byte("x"))
		for k := range n {
			require.NoError(t, os.Symlink(fmt.Sprintf("../%02d", k), filepath.Join(root, dir, fmt.Sprintf("to-%02d", k))))
		}
	}
	err := open(t, root, bare{}).List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
	require.ErrorIs(t, err, filesystem.ErrManyLinks)
	require.ErrorContains(t, err, root)
}

// A link is rejected if it leads to what the environment forbids, even if it was created after the
// directory was listed.
func TestLinksToWhatMustNotBeRead(t *testing.T) {
	root, kubelet := t.TempDir(), t.TempDir()
	write(t, kubelet, "pods/secret", []byte("secret"))
	write(t, root, "in/a", []byte("x"))
	t.Setenv(filesystem.NeverVariable, kubelet)
	s := open(t, root, bare{})
	require.Len(t, list(t, s), 1)
	all := func(string, bool) bool { return true }
	for link, target := range map[string]string{"dir": kubelet, "in/dir": kubelet + "/pods", "in/file": kubelet + "/pods/secret", "above": filepath.Dir(kubelet)} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
		err := s.List(t.Context(), all, func(storage.Object) error { return nil })
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, filepath.Base(link)+": it leads to "+target)
		require.NoError(t, os.Remove(filepath.Join(root, link)))
	}

	in := list(t, s)["in"]
	require.NoError(t, os.Rename(filepath.Join(root, "in/a"), filepath.Join(kubelet, "a")))
	require.NoError(t, os.Symlink(filepath.Join(kubelet, "a"), filepath.Join(root, "in/a")))
	err := storage.ReadAt(t.Context(), s, in, make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// A directory counts once, whatever names it has: the paths in it depend on its name, and so may
// the sizes of its objects.
func TestDirectoryWithTwoNamesIsAnError(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	write(t, root, "2024-05/a", []byte("x"))
	write(t, elsewhere, "b", []byte("x"))
	all := func(string, bool) bool { return true }
	for _, links := range []map[string]string{{"latest": "2024-05"}, {"one": elsewhere, "two": elsewhere}, {"in/latest": "../2024-05"}} {
		for link, to := range links {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, link)), 0o700))
			require.NoError(t, os.Symlink(to, filepath.Join(root, link)))
		}
		s := open(t, root, bare{})
		err := s.List(t.Context(), all, func(storage.Object) error { return nil })
		require.ErrorContains(t, err, " are one directory: remove one of them")
		for link := range links {
			require.ErrorContains(t, err, link)
		}
		require.NoError(t, s.List(t.Context(), func(path string, _ bool) bool { _, is := links[path]; return !is }, func(storage.Object) error { return nil }))
		for link := range links {
			require.NoError(t, os.Remove(filepath.Join(root, link)))
		}
	}
}
