package scan

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// mapping is a storage that maps, under the control of a test. It maps real files.
type mapping struct {
	storage.Storage
	storage.Leaser
	mapper     storage.Mapper
	evictions  atomic.Uint64
	dir        string
	cold       bool         // the page cache is left as it is
	evicted    atomic.Bool  // nothing is in the page cache any more
	most       int64        // maximum of concurrent mappings, 0 for any number
	open       atomic.Int64 // mappings
	checks     atomic.Int64 // checks of mapped files
	unmappable bool
	unleased   bool          // files have no leases
	hangs      chan struct{} // if set, mappings wait for it
	calls      atomic.Int64  // of Map
}

// openMapper returns a storage of the dataset that can map on this machine.
func openMapper(t testing.TB, d *readtest.Dataset) *mapping {
	t.Helper()
	files := readtest.OpenFiles(t, d.Dir)
	m, err := storagetest.Map(files, d.Index.ShardTable[0].Object)
	if err != nil && os.Getenv("CI") != "true" {
		t.Skipf("files can't be mapped here: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, m.Close())
	return &mapping{Storage: files, Leaser: files, mapper: files, dir: d.Dir}
}

func (s *mapping) Evictions() uint64 { return s.evictions.Load() }

func (s *mapping) Caps() storage.Caps { return storage.Caps{Mapper: s} }

func (s *mapping) Map(o storage.Object, done func(storage.Mapping, error)) {
	s.calls.Add(1)
	if s.unmappable {
		go done(nil, storage.ErrNotMapped)
		return
	}
	if hangs := s.hangs; hangs != nil {
		go func() {
			<-hangs
			s.mapNow(o, done)
		}()
		return
	}
	s.mapNow(o, done)
}

func (s *mapping) mapNow(o storage.Object, done func(storage.Mapping, error)) {
	if s.most > 0 && s.open.Add(1) > s.most {
		s.open.Add(-1)
		go done(nil, storage.ErrTooManyMappings)
		return
	}
	s.mapper.Map(o, func(m storage.Mapping, err error) {
		switch {
		case err == nil:
			if s.most == 0 {
				s.open.Add(1)
			}
			done(&countedMapping{m, s, filepath.Join(s.dir, o.Path)}, nil)
		default:
			if s.most > 0 {
				s.open.Add(-1)
			}
			done(nil, err)
		}
	})
}

type countedMapping struct {
	storage.Mapping
	s    *mapping
	path string
}

// hot calls ask until the page cache has what is asked for, and has pages read that the machine has
// evicted meanwhile, or is moving. It asks once if the test wants the page cache as it is.
func (m *countedMapping) hot(ask func() bool) bool {
	for range 30 {
		if ask() {
			return true
		}
		if m.s.cold {
			return false
		}
		_, _ = os.ReadFile(m.path)
	}
	return false
}

func (m *countedMapping) Check() error {
	m.s.checks.Add(1)
	return m.Mapping.Check()
}
func (m *countedMapping) Leased() bool { return !m.s.unleased && m.Mapping.Leased() }
func (m *countedMapping) Close() error { m.s.open.Add(-1); return m.Mapping.Close() }
func (m *countedMapping) Resident(off, size int64) bool {
	return !m.s.evicted.Load() && m.hot(func() bool { return m.Mapping.Resident(off, size) })
}
func (m *countedMapping) Populate(off, size int64) (added int64, ok bool) {
	if m.s.evicted.Load() {
		return 0, false
	}
	m.hot(func() bool {
		added, ok = m.Mapping.Populate(off, size)
		return ok
	})
	return added, ok
}

// newMappedScanner returns a scanner that maps pieces of any size; everything is unmapped when the
// test ends.
func newMappedScanner(t testing.TB, d *readtest.Dataset, limit int64, s *mapping) *testScanner {
	t.Helper()
	sc := newScannerOver(t, d, limit, s)
	configureMaps(sc, func(c *mapped.Config) {
		c.LeastBytes = 0
		c.Patience = time.Hour // everything is mapped, however long it takes
	})
	t.Cleanup(func() {
		require.NoError(t, sc.Close())
		maps := sc.maps.Stats()
		require.Zero(t, maps.Bytes)
		require.Zero(t, maps.ComingBytes)
		require.Zero(t, maps.TableBytes)
		require.Zero(t, sc.cache.tables)
		require.Zero(t, s.open.Load(), "all mappings are closed")
	})
	return sc
}

// configureMaps replaces the maps of a scanner that has not been used yet.
func configureMaps(sc *testScanner, change func(c *mapped.Config)) {
	c := sc.mapsConfig()
	change(&c)
	sc.maps = mapped.New(c, mapsOwner{sc.Scanner})
}

// evict drops a file from the page cache.
func evict(t *testing.T, path string) {
	sc, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, sc.Sync())
	require.NoError(t, unix.Fadvise(int(sc.Fd()), 0, 0, unix.FADV_DONTNEED))
	require.NoError(t, sc.Close())
}
