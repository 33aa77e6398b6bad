package pipeline

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// cachedSpec is for the dataset at the server, with a cache in a directory of its own that has room
// for all of it, however full the disk is. Requests are made once, however slow the machine is, so
// that they can be counted.
func cachedSpec(t *testing.T, w served) spec.Spec {
	s := testSpec(t, w.url)
	s.Cache = spec.Cache{Dir: filepath.Join(t.TempDir(), "cache"), SizeBytes: 1 << 30, ReserveBytes: 0, Fill: spec.FillOff}
	s.Remote.Hedge = spec.HedgeOff
	return s
}

// bodies counts the responses with bytes of objects that the server has sent.
func (w served) bodies() (n int) {
	for _, r := range w.server.Log() {
		if r.Method == "GET" {
			n++
		}
	}
	return n
}

// openClosing is open for datasets that a test closes itself.
func openClosing(t *testing.T, s spec.Spec) *Dataset {
	t.Helper()
	d, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	return d
}

// What was read once is read from the disk the next time, in any order, even after the dataset was
// closed, without requesting a byte from the server.
func TestRemoteReadsAreServedFromCache(t *testing.T) {
	for name, shape := range map[string]synthetic.Shape{
		"tar":       {Format: "tar", RecordBytes: 4096},
		"tar.gz":    {Format: "tar", Codec: "gz", RecordBytes: 4096},
		"jsonl.zst": {Format: "jsonl", Codec: "zst"},
		"tfrecord":  {Format: "tfrecord"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serveShards(t, shape, 60)
			local := testSpec(t, w.dir)
			s := cachedSpec(t, w)
			d := openClosing(t, s)
			require.Equal(t, sums(t, open(t, local), local, nil), sums(t, d, s, nil))
			require.NoError(t, d.Warm(t.Context(), func(done, total int64) { require.LessOrEqual(t, done, total) }))
			st := d.Status().Cache
			require.Equal(t, "on", st.State, st.Reason)
			require.Equal(t, 1.0, st.Fill)
			require.NoError(t, d.Close())

			before := w.bodies()
			for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleFull, spec.ShuffleNone} {
				s.Order.Shuffle, local.Order.Shuffle = shuffle, shuffle
				d = openClosing(t, s)
				done := []order.Done{order.First(50, s.Order)}
				require.Equal(t, sums(t, open(t, local), local, done), sums(t, d, s, done))
				require.Zero(t, d.Status().Cache.Misses)
				require.Positive(t, d.Status().Cache.Hits)
				require.NoError(t, d.Close())
			}
			require.Equal(t, before, w.bodies(), "no byte was asked for")
		})
	}
}

// wholeInTheCache opens a dataset at a server that is entirely in the cache, with far less memory
// than its size; want are the sums of its files.
func wholeInTheCache(t *testing.T) (d *Dataset, s spec.Spec, want []string) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 300)
	local := testSpec(t, w.dir)
	s = cachedSpec(t, w)
	s.Read, s.Cache.SizeBytes, s.MemoryBytes = spec.ReadScan, 1<<30, 2<<20
	d = open(t, s)
	require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
	return d, s, sums(t, open(t, local), local, nil)
}

// An object that is entirely in the cache is read like a file on a disk: mapped, if it is in the
// page cache.
func TestFullyCachedObjectsAreMapped(t *testing.T) {
	d, s, want := wholeInTheCache(t)
	require.Eventually(t, func() bool {
		require.Equal(t, want, sums(t, d, s, nil))
		return d.Status().Fetch.RecordsMapped > 0
	}, 5*time.Minute, 10*time.Millisecond)
}

// If another program writes to the files of a cache, or frees their pages, while they are read and
// mapped, the bytes stay correct and no reader gets an error.
func TestCacheFilesBeingWrittenNeverYieldWrongBytes(t *testing.T) {
	d, s, want := wholeInTheCache(t)
	files, err := filepath.Glob(filepath.Join(s.Cache.Dir, "v1", "*", "*.data"))
	require.NoError(t, err)
	require.Len(t, files, servedShards)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r := rand.New(rand.NewPCG(1, 2))
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			f, err := os.OpenFile(files[i%len(files)], os.O_RDWR, 0)
			if err != nil {
				continue
			}
			info, _ := f.Stat()
			at := r.Int64N(info.Size())
			if i%3 == 0 {
				_ = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, 100_000)
			} else {
				_, _ = f.WriteAt([]byte("damage"), min(at, info.Size()-10))
			}
			_ = f.Close()
		}
	}()
	least := 15
	if testing.Short() {
		least = 5
	}
	for n := 0; n < least || d.Status().Cache.BadPages == 0; n++ {
		require.Equal(t, want, sums(t, d, s, nil))
	}
	close(stop)
	<-stopped
	require.Zero(t, d.Status().Fetch.Errors)
}

// The index pass of a dataset that is in the cache requests nothing but names from the server.
func TestIndexIsBuiltFromCache(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := cachedSpec(t, w)
	d := openClosing(t, s)
	want := d.Fingerprint()
	require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
	require.NoError(t, d.Close())
	before := w.bodies()
	s.IndexDir = t.TempDir()
	require.Equal(t, want, open(t, s).Fingerprint())
	require.Equal(t, before, w.bodies())
}

// The index pass makes one request per shard through the cache, too. It leaves all that it read
// there, so that the next pass, with its own index directory, requests no bytes.
func TestIndexPassFillsCache(t *testing.T) {
	for name, shape := range map[string]synthetic.Shape{
		"tar":       {Format: "tar", RecordBytes: 40_000},
		"tar.gz":    {Format: "tar", Codec: "gz", RecordBytes: 4096},
		"jsonl.zst": {Format: "jsonl", Codec: "zst"},
		"tfrecord":  {Format: "tfrecord"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serveShards(t, shape, 60)
			want := open(t, testSpec(t, w.dir)).Fingerprint()
			s := cachedSpec(t, w)
			d := openClosing(t, s)
			require.Equal(t, want, d.Fingerprint())
			require.NoError(t, d.Close())
			most := servedShards
			if name == "tar" {
				most += 2 // those opened to check whether they hold games
			}
			require.LessOrEqual(t, w.bodies(), most)
			before := w.bodies()
			s.IndexDir = t.TempDir()
			require.Equal(t, want, open(t, s).Fingerprint())
			require.Equal(t, before, w.bodies())
		})
	}
}

// Verifying reads from the server, not from the cache.
func TestVerifyBypassesCache(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tfrecord"}, 60)
	s := cachedSpec(t, w)
	d := open(t, s)
	require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
	before := w.bodies()
	report, err := d.VerifyShards(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Greater(t, w.bodies(), before)
}

// An object that is overwritten has another name in the cache: none of its old bytes is read.
func TestOverwrittenObjectIsReadAgain(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	s := cachedSpec(t, w)
	d := openClosing(t, s)
	require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
	require.NoError(t, d.Close())
	other := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 61)
	for _, name := range w.names {
		b, err := os.ReadFile(filepath.Join(other.dir, name))
		require.NoError(t, err)
		w.server.PutBytes("train/"+name, b)
	}
	local := testSpec(t, other.dir)
	require.Equal(t, sums(t, open(t, local), local, nil), sums(t, open(t, s), s, nil))
}

// Objects without versions are not cached: they could not be told from later ones.
func TestObjectsWithoutVersionsAreNotCached(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	for _, name := range w.names {
		w.server.Bare("train/" + name)
	}
	s := cachedSpec(t, w)
	s.Remote.Unversioned = true
	d := open(t, s)
	local := testSpec(t, w.dir)
	require.Equal(t, sums(t, open(t, local), local, nil), sums(t, d, s, nil))
	require.Zero(t, d.Status().Cache.Written)
	require.ErrorIs(t, d.Warm(t.Context(), func(int64, int64) {}), diskcache.ErrNotFilled)
}

// A fill begins with the first read, not before: a mount that is only looked at costs nothing.
func TestFillStartsWithFirstRead(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 40 << 10}, 60)
	s := cachedSpec(t, w)
	s.Cache.Fill = spec.FillAuto
	s.MemoryBytes = 1 << 20
	d := open(t, s)
	before := w.bodies()
	_, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	_, err = d.Describe()
	require.NoError(t, err)
	require.Equal(t, before, w.bodies())
	require.Less(t, d.Status().Cache.Fill, 1.0)
	readFirst(t, d, s, 1000)
	require.Eventually(t, func() bool { return d.Status().Cache.Fill == 1 }, time.Minute, time.Millisecond)
}

// If the user asked for a cache, a directory that can't be used is an error that explains why;
// otherwise it is a warning, and the dataset is read without a cache.
func TestUnsuitableCacheDirectoriesAreRefused(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 20)
	local := testSpec(t, w.dir)
	want := sums(t, open(t, local), local, nil)
	for name, c := range map[string]struct {
		make  func(dir string) error
		words string
	}{
		"a file":              {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "it is not a directory"},
		"others may use it":   {func(dir string) error { return os.Mkdir(dir, 0o755) }, "chmod 700"},
		"it is not empty":     {func(dir string) error { return os.MkdirAll(filepath.Join(dir, "letters"), 0o700) }, "not a cache of lsiofs"},
		"it is somebody's":    {strangersDirectory, "it belongs to user"},
		"a link":              {func(dir string) error { return os.Symlink(os.TempDir(), dir) }, "links are not followed"},
		"below a file":        {func(dir string) error { return os.WriteFile(filepath.Dir(dir), nil, 0o600) }, "not a directory"},
		"another one's cache": {anothersCache, "another program's cache"},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "it is somebody's" && os.Geteuid() != 0 {
				t.Skip("only root gives directories away")
			}
			home := filepath.Join(t.TempDir(), "home")
			dir := filepath.Join(home, "lsiofs", "data")
			if name != "below a file" {
				require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
			} else {
				require.NoError(t, os.MkdirAll(home, 0o700))
			}
			require.NoError(t, c.make(dir))
			s := testSpec(t, w.url)
			s.Cache = spec.Cache{Dir: dir, Fill: spec.FillOff}
			_, err := Open(t.Context(), s, Options{})
			require.ErrorContains(t, err, c.words)
			require.ErrorContains(t, err, dir)

			t.Setenv("XDG_CACHE_HOME", home)
			s.Cache.Dir = ""
			var log bytes.Buffer
			d, err := Open(t.Context(), s, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			require.Equal(t, want, sums(t, d, s, nil))
			require.Nil(t, d.Status().Cache)
			require.ErrorIs(t, d.Warm(t.Context(), nil), ErrNoCache)
			require.NoError(t, d.Close())
			require.Contains(t, log.String(), "level=WARN")
			require.Contains(t, log.String(), c.words)
			require.Contains(t, log.String(), "--cache-size off")
		})
	}
}

func strangersDirectory(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chown(dir, 12345, 12345)
}

func anothersCache(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "CACHEDIR.TAG"), []byte("Signature: 8a477f597d28d172789f06886806bc55\n# borg\n"), 0o600)
}

// If a cache fails while a dataset is read, no byte changes and no read fails.
func TestCacheFaultsNeverReachReaders(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 20 << 10}, 60)
	local := testSpec(t, w.dir)
	want := sums(t, open(t, local), local, nil)
	each := func(t *testing.T, dir, ending string, change func(path string)) {
		paths, err := filepath.Glob(filepath.Join(dir, "v1", "*", "*"+ending))
		require.NoError(t, err)
		require.Len(t, paths, servedShards)
		for _, p := range paths {
			change(p)
		}
	}
	for name, befall := range map[string]func(t *testing.T, dir string){
		"it is removed": func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
		"all is flipped": func(t *testing.T, dir string) {
			each(t, dir, ".data", func(path string) {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				for i := range b {
					b[i] ^= 0x40
				}
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = f.Write(b)
				require.NoError(t, err)
				require.NoError(t, f.Close())
			})
		},
		"data is truncated": func(t *testing.T, dir string) {
			each(t, dir, ".data", func(path string) { require.NoError(t, os.Truncate(path, 5000)) })
		},
		"sums are truncated": func(t *testing.T, dir string) {
			each(t, dir, ".sums", func(path string) { require.NoError(t, os.Truncate(path, 5000)) })
		},
	} {
		for _, when := range []string{"while it is open", "while it is closed"} {
			t.Run(name+" "+when, func(t *testing.T) {
				s := cachedSpec(t, w)
				d := openClosing(t, s)
				require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
				if when == "while it is closed" {
					require.NoError(t, d.Close())
					befall(t, s.Cache.Dir)
					d = openClosing(t, s)
				} else {
					befall(t, s.Cache.Dir)
				}
				for range 2 {
					require.Equal(t, want, sums(t, d, s, nil))
				}
				require.NoError(t, d.Close())
			})
		}
	}
}

// A disk that is too small is used as far as possible.
func TestADiskThatIsTooSmall(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=0700"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("mounting takes root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 20 << 10}, 60)
	local := testSpec(t, w.dir)
	want := sums(t, open(t, local), local, nil)
	s := cachedSpec(t, w)
	s.Cache.Dir = dir
	d := openClosing(t, s)
	for range 2 {
		require.Equal(t, want, sums(t, d, s, nil))
	}
	st := d.Status().Cache
	require.Positive(t, st.Hits)
	require.Greater(t, st.Misses, st.Written, "some were fetched twice")
	require.NoError(t, d.Close())
}

// A network file system is cached only if the user asks for it, and a disk never.
func TestOnlyNetworkFileSystemsAreCached(t *testing.T) {
	w := serveShards(t, synthetic.Shape{Format: "tar", RecordBytes: 4096}, 60)
	network := storage.DefaultProfile(storage.KindNetwork)
	disk := storage.DefaultProfile(storage.KindSSD)
	local := testSpec(t, w.dir)
	want := sums(t, open(t, local), local, nil)
	for name, c := range map[string]struct {
		profile storage.Profile
		size    int64
		cached  bool
	}{
		"a network's, asked for": {network, 1 << 30, true},
		"a network's":            {network, 0, false},
		"a disk":                 {disk, 1 << 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			s := testSpec(t, w.dir)
			s.Cache = spec.Cache{SizeBytes: c.size, Fill: spec.FillOff}
			d, err := Open(context.Background(), s, Options{Storage: &c.profile})
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			require.Equal(t, want, sums(t, d, s, nil))
			st := d.Status().Cache
			require.Equal(t, c.cached, st != nil)
			if !c.cached {
				return
			}
			require.NoError(t, d.Warm(t.Context(), func(int64, int64) {}))
			misses := d.Status().Cache.Misses
			require.Equal(t, want, sums(t, d, s, nil))
			require.Equal(t, misses, d.Status().Cache.Misses)
		})
	}
}
