package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) {
	backing.Main()
	goleak.VerifyTestMain(m)
}

func openEngine(t *testing.T, mode uring.Mode) uring.Engine {
	engine, err := uring.Open(mode)
	if err != nil && mode == uring.ModeUring && os.Getenv("CI") != "true" {
		t.Skipf("io_uring is missing here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return engine
}

func write(t *testing.T, root, path string, content string) {
	full := filepath.Join(root, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
	require.NoError(t, os.WriteFile(full, []byte(content), 0o600))
}

// openAt opens the storage of root with an engine for this kind of machine.
func openAt(t *testing.T, root string, maxOpen int) *Storage {
	return openWith(t, root, openEngine(t, uring.ModeAuto), maxOpen)
}

func openWith(t *testing.T, root string, engine uring.Engine, maxOpen int) *Storage {
	return openDirectly(t, root, engine, DirectAuto, maxOpen)
}

func openDirectly(t *testing.T, root string, engine uring.Engine, direct Direct, maxOpen int) *Storage {
	s, err := open(root, engine, direct, maxOpen)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSuite(t *testing.T) {
	for name, c := range map[string]struct {
		maxOpen int
		direct  Direct
	}{"many descriptors": {512, DirectAuto}, "one descriptor": {1, DirectOff}, "direct reads": {512, DirectOn}} {
		for _, mode := range []uring.Mode{uring.ModePread, uring.ModeUring} {
			t.Run(string(mode)+" with "+name, func(t *testing.T) {
				storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
					root := t.TempDir()
					for path, content := range files {
						write(t, root, path, string(content))
					}
					return openDirectly(t, root, openEngine(t, mode), c.direct, c.maxOpen)
				})
			})
		}
	}
}

func TestOpenRefusesNonDirectory(t *testing.T) {
	root := t.TempDir()
	write(t, root, "file", "x")
	_, err := Open(filepath.Join(root, "file"), nil)
	require.ErrorContains(t, err, filepath.Join(root, "file")+" is not a directory")
	_, err = Open(filepath.Join(root, "nothing"), nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestEngineRemainsOwnedByCaller(t *testing.T) {
	root := t.TempDir()
	write(t, root, "a", "content")
	engine := openEngine(t, uring.ModeAuto)
	for range 2 {
		s, err := Open(root, engine)
		require.NoError(t, err)
		require.Equal(t, "content", read(t, s, stat(t, s, "a")))
		require.NoError(t, s.Close())
	}
}

func stat(t *testing.T, s *Storage, path string) storage.Object {
	o, err := s.Stat(t.Context(), path)
	require.NoError(t, err)
	return o
}

// read reads an object whole.
func read(t *testing.T, s storage.Storage, o storage.Object) string {
	p := make([]byte, o.SizeBytes)
	require.NoError(t, storage.ReadAt(t.Context(), s, o, p, 0))
	return string(p)
}

func listAll(t *testing.T, s *Storage) map[string]storage.Object {
	found := make(map[string]storage.Object)
	require.NoError(t, s.List(t.Context(), everything, func(o storage.Object) error {
		require.NotContains(t, found, o.Path)
		found[o.Path] = o
		return nil
	}))
	return found
}

func everything(string, bool) bool { return true }

func TestLinksAreFollowed(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	write(t, outside, "shard", "from outside")
	write(t, outside, "deep/er/shard", "from far outside")
	write(t, root, "dir/inside", "from inside")
	for link, target := range map[string]string{
		"absolute":      filepath.Join(outside, "shard"),
		"relative":      "dir/inside",
		"twice":         "relative",
		"todir":         "dir",
		"dir/tooutside": filepath.Join(outside, "deep"),
		".hidden":       "dir/inside",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	s := openAt(t, root, 10)
	found := listAll(t, s)
	contents := map[string]string{
		"absolute": "from outside", "relative": "from inside", "twice": "from inside", "dir/inside": "from inside", "todir/inside": "from inside",
		"dir/tooutside/er/shard": "from far outside", "todir/tooutside/er/shard": "from far outside",
	}
	require.Len(t, found, len(contents))
	for path, content := range contents {
		require.Equal(t, found[path], stat(t, s, path))
		require.Equal(t, content, read(t, s, found[path]))
	}

	require.NoError(t, os.Symlink(filepath.Join(outside, "nothing"), filepath.Join(root, "dir", "broken")))
	err := s.List(t.Context(), everything, func(storage.Object) error { return nil })
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "/broken: no such file or directory: mend or remove the link, or leave it out with --exclude")
	require.NoError(t, s.List(t.Context(), func(path string, _ bool) bool { return path != "dir/broken" && path != "todir/broken" },
		func(storage.Object) error { return nil }), "a link that is not matched is not looked at")
}

// match is asked about a link that leads back to a directory above it as about a file, and the link
// is not entered. A link that leads there by a detour is entered until it does.
func TestLinksToAncestorsAreNotEntered(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	write(t, root, "../beside/d", "x")
	write(t, root, "a", "x")
	write(t, root, "dir/b", "x")
	write(t, root, "other/c", "x")
	for link, target := range map[string]string{"above": "..", "self": ".", "dir/up": "..", "dir/absolute": root, "dir/across": "../other", "other/across": "../dir", "cycle": "cycle"} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
	}
	asked := map[string]bool{}
	var files []string
	require.NoError(t, openAt(t, root, 10).List(t.Context(), func(path string, isDir bool) bool {
		asked[path] = isDir
		return isDir || path != "cycle"
	}, func(o storage.Object) error {
		files = append(files, o.Path)
		return nil
	}))
	require.ElementsMatch(t, []string{"a", "dir/b", "dir/across/c", "other/c", "other/across/b", "above/beside/d"}, files)
	for path, isDir := range map[string]bool{"self": false, "dir/up": false, "dir/absolute": false, "dir/across": true, "dir/across/across": false, "other/across/up": false, "above": true, "above/root": false} {
		got, was := asked[path]
		require.True(t, was, path)
		require.Equal(t, isDir, got, path)
	}
}

func TestIrregularFilesAreIgnored(t *testing.T) {
	root := serve.ShortDir(t) // short enough for a socket
	write(t, root, "a", "content")
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(socket) })
	require.NoError(t, unix.Bind(socket, &unix.SockaddrUnix{Name: filepath.Join(root, "socket")}))
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(root, "device")))
	s := openAt(t, root, 10)
	require.Len(t, listAll(t, s), 1)
	for _, path := range []string{"pipe", "socket", "device", ".", "../" + filepath.Base(root) + "/a"} {
		_, err := s.Stat(t.Context(), path)
		require.Error(t, err, path)
	}
}

func TestUnreadableDirectoryErrorNamesIt(t *testing.T) {
	root := serve.ShortDir(t) // accessible to another user
	write(t, root, "a", "x")
	write(t, root, "in/b", "x")
	require.NoError(t, os.Chmod(filepath.Join(root, "in"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "in"), 0o700) })
	s := openAt(t, root, 10)
	if os.Geteuid() == 0 {
		// Root can read everything: use another user's permissions, on this thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := unix.SetfsuidRetUid(65534)
		require.NoError(t, err)
		defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	}
	err := s.List(context.Background(), everything, func(storage.Object) error { return nil })
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, filepath.Join(root, "in"))
}

func TestDeepAndWideDirectoriesAreListed(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("d/", 300)
	write(t, root, deep+"leaf", "x")
	const wide = 2*listBatch + 3
	require.NoError(t, os.Mkdir(filepath.Join(root, "wide"), 0o700))
	for i := range wide {
		f, err := os.Create(filepath.Join(root, "wide", strings.Repeat("x", 1+i%200)+string(rune('0'+i/200))))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	found := listAll(t, openAt(t, root, 10))
	require.Len(t, found, wide+1)
	require.Contains(t, found, deep+"leaf")
}

func TestFilesVanishingDuringListingAreIgnored(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"dir/a", "dir/b", "dir/c", "other/d"} {
		write(t, root, path, "x")
	}
	s := openAt(t, root, 10)
	visited := 0
	require.NoError(t, s.List(t.Context(), everything, func(o storage.Object) error {
		visited++
		return errors.Join(os.RemoveAll(filepath.Join(root, "dir")), os.RemoveAll(filepath.Join(root, "other")))
	}))
	require.Equal(t, 1, visited)
}

// Directories that all link to each other have as many paths as there are orderings of them.
func TestLinksThatCrossAreAnError(t *testing.T) {
	root := t.TempDir()
	cross(t, root)
	err := openAt(t, root, 10).List(t.Context(), everything, func(storage.Object) error { return nil })
	require.ErrorIs(t, err, filesystem.ErrManyLinks)
	require.ErrorContains(t, err, root)
}

func cross(t *testing.T, root string) {
	const n = 12
	for i := range n {
		dir := fmt.Sprintf("%02d", i)
		write(t, root, dir+"/a", "x")
		for k := range n {
			require.NoError(t, os.Symlink(fmt.Sprintf("../%02d", k), filepath.Join(root, dir, fmt.Sprintf("to-%02d", k))))
		}
	}
}

// A link is rejected if it leads to what the environment forbids, even if it was created after the
// dataset was listed.
func TestLinksToWhatMustNotBeRead(t *testing.T) {
	root, kubelet := t.TempDir(), t.TempDir()
	write(t, kubelet, "pods/secret", "secret")
	write(t, root, "a", "x")
	write(t, root, "in/b", "x")
	t.Setenv(filesystem.NeverVariable, kubelet)
	s := openAt(t, root, 10)
	found := listAll(t, s)
	require.Len(t, found, 2)
	for link, target := range map[string]string{"dir": kubelet, "in/dir": kubelet + "/pods", "file": kubelet + "/pods/secret", "above": filepath.Dir(kubelet)} {
		require.NoError(t, os.Symlink(target, filepath.Join(root, link)))
		err := s.List(t.Context(), everything, func(storage.Object) error { return nil })
		require.ErrorIs(t, err, fs.ErrPermission)
		require.ErrorContains(t, err, filepath.Join(root, link)+": it leads to "+target)
		require.ErrorContains(t, err, "remove the link")
		require.NoError(t, s.List(t.Context(), func(path string, _ bool) bool { return path != link }, func(storage.Object) error { return nil }))
		require.NoError(t, os.Remove(filepath.Join(root, link)))
	}

	require.NoError(t, os.Rename(filepath.Join(root, "a"), filepath.Join(kubelet, "a")))
	require.NoError(t, os.Symlink(filepath.Join(kubelet, "a"), filepath.Join(root, "a")))
	err := storage.ReadAt(t.Context(), s, found["a"], make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrPermission, "it is what was listed, and no link then")
	require.NotErrorIs(t, err, storage.ErrChanged)
}

// A caller that arrives while the server is being queried waits for the next query, because the
// current one may have been answered before the caller's read.
func TestOneQueryServesAllEarlierCallers(t *testing.T) {
	var l looks
	var asked atomic.Int32
	begun, answer := make(chan struct{}), make(chan error)
	ask := func() error {
		asked.Add(1)
		begun <- struct{}{}
		return <-answer
	}
	first := make(chan error, 1)
	go func() { first <- l.one(ask) }()
	<-begun

	const many = 20
	errs := make([]error, many)
	var came atomic.Int32
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			came.Add(1)
			errs[i] = l.one(ask)
		})
	}
	for came.Load() < many {
		runtime.Gosched()
	}
	changed := errors.New("changed")
	answer <- nil
	require.NoError(t, <-first, "the answer to its own question")
	// Callers that arrived late may have a query of their own.
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	for done := false; !done; {
		select {
		case <-begun:
			answer <- changed
		case <-ended:
			done = true
		}
	}
	for _, err := range errs {
		require.Equal(t, changed, err)
	}
	require.GreaterOrEqual(t, asked.Load(), int32(2))
}

func TestDirectReadsFollowFlagAndDataset(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	for _, c := range []struct {
		direct        Direct
		fits, exceeds uring.Direct
	}{
		{DirectAuto, uring.DirectNever, uring.DirectCold},
		{DirectOn, uring.DirectAlways, uring.DirectAlways},
		{DirectOff, uring.DirectNever, uring.DirectNever},
	} {
		t.Run(string(c.direct), func(t *testing.T) {
			s := openDirectly(t, root, openEngine(t, uring.ModeAuto), c.direct, 10)
			s.exceedsMemory.Store(true)
			require.Equal(t, c.exceeds, s.policy())
			require.Equal(t, "content", read(t, s, stat(t, s, "shard")))
			listAll(t, s)
			require.Equal(t, c.fits, s.policy(), "7 bytes are less than this machine has")
		})
	}
	_, err := OpenDirect(root, nil, "maybe")
	require.EqualError(t, err, `direct reads "maybe" are unknown: use auto, on or off`)
}

func TestOnlyRequestedReadsBypassPageCache(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	for asked, direct := range map[Direct]Direct{DirectAuto: DirectOn, DirectOn: DirectOn, DirectOff: DirectOff} {
		s := openDirectly(t, root, openEngine(t, uring.ModeAuto), asked, 10)
		u, err := s.Uncached()
		require.NoError(t, err)
		require.Equal(t, direct, u.(*Storage).direct)
		require.Equal(t, "content", read(t, u.(*Storage), stat(t, s, "shard")))
		require.NoError(t, u.Close())
		require.Equal(t, "content", read(t, s, stat(t, s, "shard")))
	}
}

// opened watches a file, and returns a function that reports whether the file has been opened
// since.
func opened(t *testing.T, path string) func() bool {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
	require.NoError(t, err)
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		if err != nil {
			require.Equal(t, unix.EAGAIN, err)
		}
		return n > 0
	}
}

// Opening a pipe would let its writer continue; opening a device can have side effects.
func TestReplacedFileOfOtherTypeIsNotOpened(t *testing.T) {
	elsewhere := t.TempDir()
	pipe := filepath.Join(elsewhere, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	device := pipe
	if os.Geteuid() == 0 {
		device = filepath.Join(elsewhere, "null")
		require.NoError(t, unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	for name, c := range map[string]struct {
		is     string // the watched file
		become func(path string) error
	}{
		"a link to a pipe":   {pipe, func(path string) error { return os.Symlink(pipe, path) }},
		"a pipe":             {"", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		"a link to a device": {device, func(path string) error { return os.Symlink(device, path) }},
		"a directory":        {"", func(path string) error { return os.Mkdir(path, 0o700) }},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "a", "content")
			s := openAt(t, root, 512)
			a := stat(t, s, "a")
			path := filepath.Join(root, "a")
			require.NoError(t, os.Remove(path))
			require.NoError(t, c.become(path))
			if c.is == "" {
				c.is = path
			}
			isOpened := opened(t, c.is)
			err := storage.ReadAt(t.Context(), s, a, make([]byte, 3), 0)
			require.ErrorIs(t, err, storage.ErrChanged)
			require.False(t, isOpened(), "it was opened")
			_, err = s.OpenResident(a)
			require.ErrorIs(t, err, storage.ErrChanged)
			_, err = storagetest.Map(s, a)
			require.ErrorIs(t, err, storage.ErrChanged)
			require.False(t, isOpened(), "it was opened")
		})
	}
}
