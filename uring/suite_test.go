package uring

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// variant is an engine, and the kind of requests it gets.
type variant struct {
	mode   Mode
	files  bool // requests have a File
	policy Direct
}

// forEachEngine runs the suite's test with both engines, with descriptors, with files, and with
// files that are read directly.
func forEachEngine(t *testing.T, test func(t *testing.T, v variant)) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		for name, v := range map[string]variant{
			"descriptors":                    {mode: mode},
			"files":                          {mode: mode, files: true},
			"direct files":                   {mode: mode, files: true, policy: DirectAlways},
			"files read directly where cold": {mode: mode, files: true, policy: DirectCold},
		} {
			t.Run(string(mode)+" of "+name, func(t *testing.T) {
				if mode == ModeUring {
					requireUring(t)
				}
				test(t, v)
			})
		}
	}
}

// open opens the engine; for variants with files it wraps it, so that requests for descriptors
// become requests for files.
func (v variant) open(t testing.TB) Engine {
	e := openEngineAs(t, v.mode, string(v.mode))
	if !v.files {
		return e
	}
	f := &filingEngine{Engine: e, policy: v.policy, files: map[int]*File{}}
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		for _, file := range f.files {
			if d := file.direct.Load(); d != nil { // the other descriptor belongs to the test
				require.NoError(t, unix.Close(d.fd))
			}
		}
	})
	return f
}

// filingEngine sets the File of each request, by its descriptor.
type filingEngine struct {
	Engine
	policy Direct
	mu     sync.Mutex
	files  map[int]*File
}

func (f *filingEngine) Submit(requests []*Request) {
	for _, r := range requests {
		r.File = f.file(r.FD)
	}
	f.Engine.Submit(requests)
}

func (f *filingEngine) file(fd int) *File {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[fd] == nil {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags&unix.O_ACCMODE == unix.O_WRONLY {
			return nil // not usable for a File
		}
		f.files[fd] = NewFile(fd, f.policy)
	}
	return f.files[fd]
}

// requireUring skips a test if io_uring is not permitted, except in CI, which must have it.
func requireUring(t *testing.T) {
	e, err := Open(ModeUring)
	if err == nil {
		require.NoError(t, e.Close())
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI needs io_uring: %v", err)
	}
	t.Skipf("io_uring is missing here: %v", err)
}

// openEngineAs opens an engine and checks that it is the wanted one.
func openEngineAs(t testing.TB, mode Mode, want string) Engine {
	e, err := Open(mode)
	require.NoError(t, err)
	require.Equal(t, want, e.Status().Engine)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// testFile makes a file of random bytes in dir and opens it.
func testFile(t testing.TB, dir string, size int) (fd int, content []byte) {
	content = make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)})
	_, _ = random.Read(content)
	path := filepath.Join(dir, fmt.Sprintf("file-%d", size))
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return openFD(t, path, unix.O_RDONLY), content
}

func openFD(t testing.TB, path string, flags int) int {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// onFileSystems runs a test on the disk's file system, on one in memory, and on overlayfs if it can
// be mounted.
func onFileSystems(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("disk", func(t *testing.T) { test(t, t.TempDir()) })
	t.Run("tmpfs", func(t *testing.T) {
		dir, err := os.MkdirTemp("/dev/shm", "lsiofs-test-")
		if err != nil {
			t.Skipf("no tmpfs here: %v", err)
		}
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		test(t, dir)
	})
	t.Run("overlayfs", func(t *testing.T) {
		dir := t.TempDir()
		for _, part := range []string{"lower", "upper", "work", "merged"} {
			require.NoError(t, os.Mkdir(filepath.Join(dir, part), 0o700))
		}
		merged := filepath.Join(dir, "merged")
		options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			t.Skipf("no overlayfs here: %v", err)
		}
		t.Cleanup(func() { require.NoError(t, unix.Unmount(merged, unix.MNT_DETACH)) })
		test(t, merged)
	})
}

// result is what Done was called with.
type result struct {
	n   int
	err error
}

// readAll submits requests in one batch, waits for all of them, and returns what each Done was
// called with. It fails if one is called twice.
func readAll(t require.TestingT, e Engine, requests []*Request) []result {
	results := make([]result, len(requests))
	calls := make([]atomic.Int32, len(requests))
	var all sync.WaitGroup
	all.Add(len(requests))
	for i, r := range requests {
		r.Done = func(n int, err error) {
			results[i] = result{n, err}
			if calls[i].Add(1) == 1 {
				all.Done()
			}
		}
	}
	e.Submit(requests)
	all.Wait()
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load(), "Done of request %d is called once", i)
	}
	return results
}

// wanted is the expected result of a read of a file with this content.
func wanted(content []byte, off int64, length int) []byte {
	from := min(off, int64(len(content)))
	return content[from:min(from+int64(length), int64(len(content)))]
}

func entries(t *testing.T, dir string) int {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	return len(list)
}
