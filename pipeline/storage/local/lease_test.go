package local

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// leasedFile maps a file that has a lease, in a storage whose clock advances only when the test
// sets it.
func leasedFile(t *testing.T) (s *Storage, m *mapping, path string, clock *atomic.Int64) {
	root := t.TempDir()
	mapsHere(t, root)
	write(t, root, "a", "content")
	s = openAt(t, root, 10)
	clock = new(atomic.Int64)
	s.leases.clock = func() time.Duration { return time.Duration(clock.Load()) }
	mapped, err := storagetest.Map(s, stat(t, s, "a"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mapped.Close()) })
	m = mapped.(*mapping)
	if !m.Leased() {
		t.Skipf("there are no leases here: %v", s.LeaseStats().Refused)
	}
	return s, m, filepath.Join(root, "a"), clock
}

// eventually waits for the goroutine of leases.
func eventually(t *testing.T, is func() bool, why string) {
	t.Helper()
	require.Eventually(t, is, 90*time.Second, time.Millisecond, why)
}

// A process that is stopped does not check its leases; time passes, and the kernel may have revoked
// them.
func TestALeaseIsCertainForHalfASecondAfterItWasAskedAbout(t *testing.T) {
	s, m, _, clock := leasedFile(t)
	breaks := s.Breaks()
	eventually(t, s.leases.standing, "it was asked about")
	require.True(t, s.Unbroken(breaks))

	// The goroutine stops, too.
	s.leases.mu.Lock()
	until := s.leases.until.Load()
	require.LessOrEqual(t, until, clock.Load()+int64(500*time.Millisecond))
	clock.Store(until)
	require.False(t, s.leases.standing())
	require.False(t, s.Unbroken(breaks), "it may have been taken, and somebody may write")
	require.True(t, m.Leased(), "nobody knows")
	s.leases.mu.Unlock()

	eventually(t, s.leases.standing, "it was asked about again")
	require.True(t, s.Unbroken(breaks), "nobody has waited for it")
}

func TestUnavailableLeaseIsRequestedOncePerSecond(t *testing.T) {
	s, m, path, clock := leasedFile(t)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	require.False(t, m.Leased())
	require.True(t, m.OpenForWriting())
	require.NoError(t, f.Close())
	eventually(t, func() bool {
		s.leases.mu.Lock()
		defer s.leases.mu.Unlock()
		return len(s.leases.waiting) == 1
	}, "it was given up")
	require.False(t, m.Leased(), "no time has passed")
	clock.Add(int64(time.Second))
	eventually(t, m.Leased, "it is asked for again")
	require.False(t, m.OpenForWriting())
}
