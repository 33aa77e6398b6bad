package uring

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// notToBeCalled is a Done for requests that are not submitted.
func notToBeCalled(int, error) { panic("Done was called without a Submit") }

func TestReadNowReturnsBytesOfFileOrNothing(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		onFileSystems(t, func(t *testing.T, dir string) {
			e := v.open(t)
			for _, size := range []int{1, 511, 4097, 1<<20 + 13} {
				fd, content := testFile(t, dir, size)
				f := NewFile(fd, v.policy)
				before := e.Status()
				read := uint64(0)
				for _, off := range []int64{0, int64(size) / 2} {
					r := &Request{File: f, OffsetBytes: off, Buf: make([]byte, size-int(off)), Done: notToBeCalled}
					if e.ReadNow(r) {
						require.True(t, bytes.Equal(content[off:], r.Buf))
						read++
					}
					longer := &Request{File: f, OffsetBytes: off, Buf: make([]byte, size-int(off)+1), Done: notToBeCalled}
					require.False(t, e.ReadNow(longer), "where the file ends is for Submit to say")
				}
				after := e.Status()
				require.Equal(t, read, after.Reads-before.Reads)
				require.Equal(t, read, after.CachedReads-before.CachedReads)
				require.Equal(t, read > 0, after.ReadBytes > before.ReadBytes)
				require.Zero(t, after.InFlight)
				require.Zero(t, after.InFlightBytes)
				closeDirect(t, f)
			}
		})
	})
}

func TestReadNowReadsOnlyFromPageCache(t *testing.T) {
	const size = 1 << 20
	cases := []struct {
		name   string
		policy Direct
		hot    bool
		want   bool
	}{
		// Cold and not direct is not here: a fast disk may deliver it at once.
		{"hot", DirectNever, true, true},
		{"hot, direct where cold", DirectCold, true, true},
		{"cold, direct where cold", DirectCold, false, false},
		{"hot, always direct", DirectAlways, true, false},
	}
	for _, mode := range []Mode{ModePread, ModeUring} {
		for _, c := range cases {
			t.Run(string(mode)+" "+c.name, func(t *testing.T) {
				if mode == ModeUring {
					requireUring(t)
				}
				fd, content := testFile(t, t.TempDir(), size)
				f := NewFile(fd, c.policy)
				var ignored counters
				if _, full := f.readCached(make([]byte, 10), 0); !full {
					t.Skip("no RWF_NOWAIT in the temporary directory")
				}
				if !c.hot {
					evict(t, fd)
					if f.cached(&ignored, 0, size) {
						t.Skip("the page cache can't be emptied, or does not tell")
					}
				}
				e := openEngineAs(t, mode, string(mode))
				r := &Request{File: f, Buf: make([]byte, size), Done: notToBeCalled}
				if c.want {
					require.True(t, untilHot(t, fd, func() bool { return e.ReadNow(r) }))
					require.True(t, bytes.Equal(content, r.Buf))
				} else {
					require.False(t, e.ReadNow(r))
					require.Zero(t, e.Status().Reads)
				}
				if !c.hot {
					require.False(t, f.cached(&ignored, 0, size), "what is to bypass the page cache is not read ahead into it")
				}
				require.Nil(t, f.direct.Load(), "to open the file once more may wait for a disk")
			})
		}
	}
}

func TestReadNowRefusesRequestsThatRequireSubmit(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		fd, _ := testFile(t, t.TempDir(), 5000)
		f := NewFile(fd, DirectNever)
		for name, r := range map[string]*Request{
			"no file":         {FD: fd, Buf: make([]byte, 10)},
			"no buffer":       {File: f},
			"negative offset": {File: f, OffsetBytes: -1, Buf: make([]byte, 10)},
			"behind the end":  {File: f, OffsetBytes: 5000, Buf: make([]byte, 10)},
			"bad descriptor":  {File: NewFile(-1, DirectNever), Buf: make([]byte, 10)},
		} {
			r.Done = notToBeCalled
			require.False(t, e.ReadNow(r), name)
		}
		require.Zero(t, e.Status().Errors)
		require.NoError(t, e.Close())
		require.False(t, e.ReadNow(&Request{File: f, Buf: make([]byte, 10), Done: notToBeCalled}), "closed")
	})
}

func TestReadNowAllocatesNothing(t *testing.T) {
	fd, _ := testFile(t, t.TempDir(), 5000)
	f := NewFile(fd, DirectNever)
	e := openEngineAs(t, ModePread, "pread")
	r := &Request{File: f, Buf: make([]byte, 5000), Done: notToBeCalled}
	if !e.ReadNow(r) {
		t.Skip("no RWF_NOWAIT in the temporary directory")
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { e.ReadNow(r) }))
}

func TestStatusReportsWhyMemoryIsNotRegistered(t *testing.T) {
	for _, refused := range []error{nil, unix.ENOMEM} {
		kernel := newFakeRing(1, 0)
		kernel.registering = func() error { return refused }
		e, err := openRinged("", func() (kernelRing, error) { return kernel, nil })
		require.NoError(t, err)
		require.False(t, e.Status().Registered, "not before it is needed")
		require.Empty(t, e.Status().NotRegistered)
		fd, content := testFile(t, t.TempDir(), 10_000)
		f := directFileFor(t, fd, DirectAlways)
		r := &Request{File: f, OffsetBytes: 1, Buf: make([]byte, 5000)}
		require.Equal(t, []result{{n: 5000}}, readAll(t, e, []*Request{r}))
		require.True(t, bytes.Equal(content[1:5001], r.Buf))
		require.Equal(t, refused == nil, e.Status().Registered)
		if refused != nil {
			require.Equal(t, "cannot allocate memory (is the limit on locked memory too low, ulimit -l?)", e.Status().NotRegistered)
		}
		require.NoError(t, e.Close())
	}
}
