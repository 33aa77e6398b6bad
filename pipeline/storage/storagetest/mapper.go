package storagetest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// NewMapper is New for a storage whose objects are files on a disk, not yet mapped. It also returns
// their directory.
type NewMapper func(t *testing.T, files map[string][]byte) (s storage.Storage, dir string)

// RunMapper runs the suite of storage.Mapper on storages made by newMapper.
func RunMapper(t *testing.T, newMapper NewMapper) {
	for name, test := range map[string]func(*testing.T, NewMapper){
		"MappedBytesAreTheObjects":                testMappedBytes,
		"WhatIsMappedIsCountedByTheBlock":         testMappedCount,
		"WhatThePageCacheLacksIsNotMapped":        testMappedCold,
		"OtherVersionsAndNothingAreErrChanged":    testMapChanged,
		"AMappingTellsThatItsObjectHasChanged":    testMappedChanges,
		"ATruncatedObjectIsAFaultThatCheckShows":  testMappedTruncated,
		"CloseLeavesNothingAndOutlivesTheStorage": testMappedClose,
		"AWriterBreaksTheLeaseFirst":              testWriterBreaksLease,
		"AWriterGetsThroughAndALeaseComesBack":    testWriterGetsThrough,
		"ThereIsNoLeaseBesideAWriter":             testNoLeaseBesideWriters,
		"ALeaseOutlivesTheName":                   testLeaseOutlivesName,
		"ALeaseEndsWithItsMapping":                testLeaseEnds,
	} {
		t.Run(name, func(t *testing.T) { test(t, newMapper) })
	}
}

type mappable struct {
	storage.Mapper
	storage storage.Storage
	files   map[string][]byte
	dir     string
	objects map[string]storage.Object
}

func openMapper(t *testing.T, newMapper NewMapper) *mappable {
	files := contents()
	s, dir := newMapper(t, files)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	mapper := s.Caps().Mapper
	require.NotNil(t, mapper)
	return &mappable{mapper, s, files, dir, list(t, s, everything)}
}

// Map maps an object and waits for the result.
func Map(s storage.Mapper, o storage.Object) (m storage.Mapping, err error) {
	done := make(chan struct{})
	s.Map(o, func(mapped storage.Mapping, failed error) {
		m, err = mapped, failed
		close(done)
	})
	<-done
	return m, err
}

// mapped maps the large object.
func (m *mappable) mapped(t *testing.T) (storage.Mapping, string) {
	mapping, err := Map(m, m.objects["large.tar"])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mapping.Close()) })
	return mapping, m.dir + "/large.tar"
}

// populate populates a range of a file, and reads the file if the machine has evicted it from the
// page cache.
func populate(t require.TestingT, m storage.Mapping, path string, off, size int64) (added int64) {
	ok := false
	for range 10 {
		if added, ok = m.Populate(off, size); ok {
			break
		}
		_, err := os.ReadFile(path)
		require.NoError(t, err)
	}
	require.True(t, ok, "what was just read is in the page cache")
	return added
}

func testMappedBytes(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	for path, o := range s.objects {
		if o.SizeBytes == 0 {
			_, err := Map(s, o)
			require.ErrorIs(t, err, storage.ErrNotMapped, "nothing can't be mapped")
			continue
		}
		m, err := Map(s, o)
		require.NoError(t, err, path)
		require.Len(t, m.Bytes(), int(o.SizeBytes))
		random := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			r := randomRead(random, o, o.SizeBytes)
			off, size := r.OffsetBytes, int64(len(r.Buf))
			populate(t, m, s.dir+"/"+path, off, size)
			require.True(t, bytes.Equal(s.files[path][off:off+size], m.Bytes()[off:off+size]))
			m.Drop(off, size)
		}
		require.NoError(t, m.Check())
		require.NoError(t, m.Close())
	}
}

func testMappedCount(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	o := s.objects["large.tar"]
	path := s.dir + "/" + o.Path
	pages := (o.SizeBytes + 4095) &^ 4095
	rapid.Check(t, func(t *rapid.T) {
		m, err := Map(s, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, m.Close()) }()
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		held := []*storage.Read{}
		sum := int64(0)
		step := func(grow bool) {
			if grow {
				r := randomRead(random, o, 200_000)
				added := populate(t, m, path, r.OffsetBytes, int64(len(r.Buf)))
				m.Trim(r.OffsetBytes, int64(len(r.Buf)))
				held, sum = append(held, r), sum+added
			} else {
				i := random.IntN(len(held))
				sum -= m.Drop(held[i].OffsetBytes, int64(len(held[i].Buf)))
				held = append(held[:i], held[i+1:]...)
			}
			blocks := map[int64]bool{}
			for _, r := range held {
				for b := r.OffsetBytes / storage.MapBlockBytes; b*storage.MapBlockBytes < r.OffsetBytes+int64(len(r.Buf)); b++ {
					blocks[b] = true
				}
			}
			want := int64(0)
			for b := range blocks {
				want += min(storage.MapBlockBytes, pages-b*storage.MapBlockBytes)
			}
			require.Equal(t, want, sum)
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			step(len(held) == 0 || random.IntN(2) == 0)
		}
		require.LessOrEqual(t, mappedPages(t, path), sum, "the kernel maps no more than that")
		for len(held) > 0 {
			step(false)
		}
	})
}

// mappedPages returns how many bytes of a file are mapped according to the kernel.
func mappedPages(t require.TestingT, path string) int64 {
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	bytes, found := int64(0), false
	for line := range strings.Lines(string(smaps)) {
		fields := strings.Fields(line)
		switch {
		case strings.Contains(fields[0], "-"):
			found = strings.HasSuffix(strings.TrimSpace(line), path)
		case found && fields[0] == "Rss:":
			n := int64(0)
			for _, c := range fields[1] {
				n = n*10 + int64(c-'0')
			}
			bytes += n << 10
		}
	}
	return bytes
}

// evict evicts a file from the page cache. The kernel skips pages that are in use at the moment, so
// the call is repeated until it succeeds.
func evict(t *testing.T, m storage.Mapping, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	require.Eventually(t, func() bool {
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		return !m.Resident(0, 5000)
	}, time.Minute, time.Millisecond)
}

func testMappedCold(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	m, path := s.mapped(t)
	evict(t, m, path)
	added, ok := m.Populate(0, 5000)
	require.False(t, ok)
	require.Zero(t, added)
	require.Zero(t, mappedPages(t, path))

	populate(t, m, path, 0, 5000)
	require.True(t, bytes.Equal(s.files["large.tar"][:5000], m.Bytes()[:5000]))
	m.Drop(0, 5000)
}

func testMapChanged(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	o := s.objects["large.tar"]
	inode, time, size, path := o, o, o, o
	inode.Version.Inode++
	time.Version.ModTimeNanos++
	size.SizeBytes++
	path.Path = "nothing.tar"
	for _, o := range []storage.Object{inode, time, size, path} {
		_, err := Map(s, o)
		require.ErrorIs(t, err, storage.ErrChanged)
		requireError(t, err, &storage.Read{Object: o, Buf: make([]byte, o.SizeBytes)})
	}
}

func testMappedChanges(t *testing.T, newMapper NewMapper) {
	for name, change := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 5000) },
		"grown":     func(path string) error { return os.Truncate(path, 2<<20) },
		"touched":   func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := openMapper(t, newMapper)
			m, path := s.mapped(t)
			require.NoError(t, m.Check())
			require.NoError(t, change(path))
			err := m.Check()
			require.ErrorIs(t, err, storage.ErrChanged)
			requireError(t, err, &storage.Read{Object: s.objects["large.tar"], Buf: make([]byte, len(m.Bytes()))})
		})
	}
}

func testMappedTruncated(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	m, path := s.mapped(t)
	populate(t, m, path, 0, 20_000)
	require.NoError(t, os.Truncate(path, 5000))
	got := make([]byte, 20_000)
	require.Equal(t, 8192, copy(got, m.Bytes()[:8192]))
	require.True(t, bytes.Equal(s.files["large.tar"][:5000], got[:5000]))
	require.True(t, bytes.Equal(make([]byte, 3192), got[5000:8192]), "the rest of the last page is zeros")
	require.True(t, storage.Faulted(func() { copy(got, m.Bytes()[8192:20_000]) }))
	require.ErrorIs(t, m.Check(), storage.ErrChanged)
	_, ok := m.Populate(8192, 100)
	require.False(t, ok)
}

func testMappedClose(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	var mappings []storage.Mapping
	for path, o := range s.objects {
		if o.SizeBytes > 0 {
			m, err := Map(s, o)
			require.NoError(t, err)
			mappings = append(mappings, m)
			populate(t, m, s.dir+"/"+path, 0, 1)
			require.True(t, inAddressSpace(t, path))
		}
	}
	require.NoError(t, s.storage.Close())
	for _, m := range mappings {
		require.Len(t, m.Bytes()[:1], 1)
		require.NoError(t, m.Check())
		require.NoError(t, m.Close())
	}
	require.False(t, inAddressSpace(t, s.dir))
}

func inAddressSpace(t *testing.T, path string) bool {
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Contains(string(maps), path)
}

// leased maps and populates the large object, with a lease.
func (m *mappable) leased(t *testing.T) (storage.Mapping, string) {
	mapping, path := m.mapped(t)
	populate(t, mapping, path, 0, int64(len(mapping.Bytes())))
	if !mapping.Leased() {
		t.Skipf("there are no leases here: %v", m.LeaseStats().Refused)
	}
	require.Equal(t, storage.LeaseStats{Held: 1}, m.LeaseStats())
	return mapping, path
}

func testWriterBreaksLease(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	breaks := s.Breaks()
	m, path := s.leased(t)
	require.True(t, m.Leased())
	require.NoError(t, os.Truncate(path, 0))
	require.NotEqual(t, breaks, s.Breaks(), "the lease was broken before the writer got in")
	require.False(t, s.Unbroken(breaks))
	require.False(t, m.Leased())
	require.ErrorIs(t, m.Check(), storage.ErrChanged)
	require.Eventually(t, func() bool {
		require.False(t, m.Leased(), "what was changed gets none again")
		for why := range s.LeaseStats().Refused {
			return strings.Contains(why, "size is 0 bytes")
		}
		return false
	}, time.Minute, 100*time.Millisecond)
	stats := s.LeaseStats()
	require.Zero(t, stats.Held)
	require.EqualValues(t, 1, stats.Broken)
}

func testWriterGetsThrough(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	m, path := s.leased(t)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	require.False(t, m.Leased(), "somebody may write")
	require.NoError(t, f.Close())
	require.NoError(t, m.Check(), "nobody has")
	require.Eventually(t, m.Leased, time.Minute, 100*time.Millisecond, "it gets one again")
}

func testNoLeaseBesideWriters(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	f, err := os.OpenFile(s.dir+"/large.tar", os.O_RDWR, 0)
	require.NoError(t, err)
	m, _ := s.mapped(t)
	require.False(t, m.Leased())
	if !m.OpenForWriting() {
		t.Skipf("there are no leases here: %v", s.LeaseStats().Refused)
	}
	require.Len(t, s.LeaseStats().Refused, 1)
	require.NoError(t, f.Close())
	require.Eventually(t, func() bool {
		return m.Leased() && !m.OpenForWriting()
	}, time.Minute, 100*time.Millisecond)
}

func testLeaseOutlivesName(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	breaks := s.Breaks()
	m, path := s.leased(t)
	require.NoError(t, os.WriteFile(path+".new", []byte("another"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	require.True(t, bytes.Equal(s.files["large.tar"], m.Bytes()))
	require.NoError(t, os.Remove(path))
	require.True(t, bytes.Equal(s.files["large.tar"], m.Bytes()))
	require.True(t, m.Leased())
	require.Equal(t, breaks, s.Breaks())
}

func testLeaseEnds(t *testing.T, newMapper NewMapper) {
	s := openMapper(t, newMapper)
	m, err := Map(s, s.objects["large.tar"])
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.Equal(t, storage.LeaseStats{}, s.LeaseStats())
	require.NoError(t, os.Truncate(s.dir+"/large.tar", 0), "nobody is waited for")
}
