package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

// mapsHere skips the test if the kernel is too old to map what is in the page cache.
func mapsHere(t *testing.T, root string) {
	write(t, root, ".probe", "x")
	s := openAt(t, root, 10)
	m, err := storagetest.Map(s, stat(t, s, ".probe"))
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("files can't be mapped here: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, m.Close())
}

func TestMapperSuite(t *testing.T) {
	ways := map[string]residency{"cachestat": nil, "mincore": byMincore}
	if testing.Short() { // leases take seconds, and don't depend on it
		delete(ways, "mincore")
	}
	for name, ask := range ways {
		t.Run(name, func(t *testing.T) {
			mapsHere(t, t.TempDir())
			storagetest.RunMapper(t, func(t *testing.T, files map[string][]byte) (storage.Storage, string) {
				root := t.TempDir()
				for path, content := range files {
					write(t, root, path, string(content))
				}
				s := openDirectly(t, root, openEngine(t, uring.ModePread), DirectAuto, 10)
				if ask == nil {
					return s, root
				}
				return asking{s, ask}, root
			})
		})
	}
}

// asking creates mappings that use another way to find out what is in the page cache.
type asking struct {
	*Storage
	residency residency
}

func (s asking) Caps() storage.Caps { return storage.Caps{Mapper: s} }

func (s asking) Map(o storage.Object, done func(storage.Mapping, error)) {
	s.Storage.Map(o, func(m storage.Mapping, err error) {
		if err == nil {
			m.(*mapping).residency = s.residency
		}
		done(m, err)
	})
}

func TestMappedFilesStayWithinLimit(t *testing.T) {
	root := t.TempDir()
	mapsHere(t, root)
	for i := range 4 {
		write(t, root, fmt.Sprint(i), "content")
	}
	s := openAt(t, root, 10)
	s.maxMapped = 2
	var mappings []storage.Mapping
	for i := range 4 {
		m, err := storagetest.Map(s, stat(t, s, fmt.Sprint(i)))
		if i >= 2 {
			require.ErrorIs(t, err, storage.ErrTooManyMappings)
			continue
		}
		require.NoError(t, err)
		mappings = append(mappings, m)
	}
	require.NoError(t, mappings[0].Close())
	m, err := storagetest.Map(s, stat(t, s, "3"))
	require.NoError(t, err, "there is room again")
	gone := stat(t, s, "2")
	gone.Path = "gone"
	for range 5 {
		_, err = storagetest.Map(s, gone)
		require.Error(t, err)
	}
	require.NoError(t, m.Close())
	require.NoError(t, mappings[1].Close())
	require.Zero(t, s.mapped.Load(), "what failed is not counted")
}

func TestNothingIsMappedIfAllReadsAreDirect(t *testing.T) {
	root := t.TempDir()
	mapsHere(t, root)
	write(t, root, "a", "content")
	require.NotNil(t, openAt(t, root, 10).Caps().Mapper)
	s := openDirectly(t, root, openEngine(t, uring.ModePread), DirectOn, 10)
	require.Nil(t, s.Caps().Mapper)
	_, err := storagetest.Map(s, stat(t, s, "a"))
	require.ErrorIs(t, err, storage.ErrNotMapped)
}

func TestPagesStolenFromPageCacheAreParsed(t *testing.T) {
	for text, want := range map[string]uint64{
		"a 1\npgsteal_file 1490561\nb 2\n": 1490561,
		"a 1\npgsteal_file 7\n":            7,
	} {
		got, ok := stolenPages([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "pgsteal_file 1\n", "a 1\npgsteal_file 12", "a\npgsteal_file x\n", "a\npgsteal_files 1\n"} {
		_, ok := stolenPages([]byte(text))
		require.False(t, ok, text)
	}
}

func TestEvictionCountChangesOnEvictionOrDoubt(t *testing.T) {
	vmstat, err := os.Create(t.TempDir() + "/vmstat")
	require.NoError(t, err)
	say := func(text string) {
		require.NoError(t, vmstat.Truncate(0))
		_, err := vmstat.WriteAt([]byte(text), 0)
		require.NoError(t, err)
	}
	s := &Storage{evictions: evictions{vmstat: vmstat}}
	say("\npgsteal_file 5\n")
	s.evictions.ask()
	first := s.evictions.count.Load()
	s.evictions.ask()
	require.Equal(t, first, s.evictions.count.Load(), "none was taken")
	say("\npgsteal_file 6\n")
	s.evictions.ask()
	require.Equal(t, first+1, s.evictions.count.Load())
	say("\nsomething 6\n")
	s.evictions.ask()
	s.evictions.ask()
	require.Equal(t, first+3, s.evictions.count.Load(), "an old kernel does not tell")
	s.evictions.close()
	s.evictions.ask()
	require.Equal(t, first+4, s.evictions.count.Load())
}

func TestKernelReportsEvictions(t *testing.T) {
	text, err := os.ReadFile("/proc/vmstat")
	require.NoError(t, err)
	require.Less(t, len(text), len(evictions{}.text))
	var name unix.Utsname
	require.NoError(t, unix.Uname(&name))
	if name.Release[0] >= '6' {
		_, ok := stolenPages(text)
		require.True(t, ok)
	}
}

func TestCachedPartOfObjectIsReadAtOnce(t *testing.T) {
	root := t.TempDir()
	content := strings.Repeat("0123456789abcdef", 10_000)
	write(t, root, "shard", content)
	s := openAt(t, root, 10)
	r, err := s.OpenResident(stat(t, s, "shard"))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()

	p := make([]byte, 5)
	if r.ReadAt(p, 12_347) { // otherwise the file system does not support such reads
		require.Equal(t, content[12_347:12_352], string(p))
	}
	require.False(t, r.ReadAt(p, int64(len(content))-3), "its end is not five bytes")

	// Pages that the kernel evicts, on file systems where it does so on request, are not held.
	f, err := os.Open(filepath.Join(root, "shard"))
	require.NoError(t, err)
	defer f.Close()
	before := r.Holds(0, int64(len(content)))
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if r.Holds(0, int64(len(content))) {
		require.True(t, before)
	}
}

func TestChangedObjectIsNotOpenedForMemoryReads(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	s := openAt(t, root, 10)
	o := stat(t, s, "shard")
	require.NoError(t, os.Chtimes(filepath.Join(root, "shard"), time.Time{}, time.Unix(1, 0)))
	_, err := s.OpenResident(o)
	require.ErrorIs(t, err, storage.ErrChanged)
}

func TestDirectReadsDoNotQueryMemory(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	s := openDirectly(t, root, openEngine(t, uring.ModeAuto), DirectOn, 10)
	r, err := s.OpenResident(stat(t, s, "shard"))
	require.NoError(t, err)
	require.Nil(t, r)
}
