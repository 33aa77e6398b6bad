package uring

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStalledFileDelaysNoOther has more reads of a file that does not answer than there are
// threads: its verify stands in for the waiting kernel.
func TestStalledFileDelaysNoOther(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == ModeUring {
				requireUring(t)
			}
			e, err := Open(mode)
			require.NoError(t, err)
			release := make(chan struct{})
			fd, _ := testFile(t, t.TempDir(), 4096)
			bad := NewFile(fd, DirectNever)
			bad.remote = true
			answered := errors.New("answered at last")
			bad.VerifyWith(func() error { <-release; return answered })
			fd, _ = testFile(t, t.TempDir(), 4096)
			good := NewFile(fd, DirectNever)
			good.remote = true

			done := make(chan error, 3*maxPreaders)
			for range cap(done) {
				e.Submit([]*Request{{File: bad, Buf: make([]byte, 10), Done: func(_ int, err error) { done <- err }}})
			}
			for range 2 * maxPreaders {
				require.Equal(t, []result{{n: 10}}, readAll(t, e, []*Request{{File: good, Buf: make([]byte, 10)}}))
			}
			p := e.(*engine).threads
			p.mu.Lock()
			require.Positive(t, p.stuck)
			require.Positive(t, p.parked)
			require.LessOrEqual(t, p.preaders, maxPreaders)
			p.mu.Unlock()
			require.Empty(t, done)
			require.Positive(t, e.Status().Stuck)
			require.Positive(t, e.Status().RemoteReads)

			closed := make(chan error)
			go func() { closed <- e.Close() }()
			close(release)
			for range cap(done) {
				require.Equal(t, answered, <-done)
			}
			require.NoError(t, <-closed)
			require.Zero(t, p.stuck)
			require.Zero(t, p.parked)
			require.Zero(t, bad.stall.stuck)
		})
	}
}
