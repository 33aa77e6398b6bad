package storagetest

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
