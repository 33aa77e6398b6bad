package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// evict writes a file back and removes it from the page cache.
func evict(t *testing.T, fd int) {
	require.NoError(t, unix.Fdatasync(fd))
	require.NoError(t, unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED))
}

// untilHot repeats what needs the file to be in the page cache, because the machine may remove it
// from there at any time.
func untilHot(t *testing.T, fd int, try func() bool) bool {
	for range 30 {
		_, err := os.ReadFile(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
		require.NoError(t, err)
		if try() {
			return true
		}
	}
	return false
}

// directFileFor returns a File that can be read directly, or skips the test.
func directFileFor(t *testing.T, fd int, policy Direct) *File {
	f := NewFile(fd, policy)
	if f.openDirect(&counters{}) == nil {
		t.Skip("no direct reads in the temporary directory")
	}
	t.Cleanup(func() { require.NoError(t, unix.Close(f.direct.Load().fd)) })
	return f
}

func TestPageCacheHitsAreReadImmediately(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == ModeUring {
				requireUring(t)
			}
			fd, content := testFile(t, t.TempDir(), 1<<20)
			f := NewFile(fd, DirectNever)
			if _, full := f.readCached(make([]byte, 10), 0); !full {
				t.Skip("no RWF_NOWAIT in the temporary directory")
			}
			e := openEngineAs(t, mode, string(mode))
			require.True(t, untilHot(t, fd, func() bool {
				before := e.Status().CachedReads
				var requests []*Request
				for i := range 50 {
					requests = append(requests, &Request{File: f, OffsetBytes: int64(i) * 1001, Buf: make([]byte, 5000)})
				}
				for i, got := range readAll(t, e, requests) {
					require.Equal(t, result{n: 5000}, got)
					require.True(t, bytes.Equal(wanted(content, requests[i].OffsetBytes, 5000), requests[i].Buf))
				}
				return e.Status().CachedReads == before+50
			}))
			require.Zero(t, e.Status().DirectReads)
		})
	}
}

func TestReadsBypassPageCacheAccordingToPolicy(t *testing.T) {
	const size = 3<<20 + 777
	cases := []struct {
		name   string
		policy Direct
		hot    bool
		length int
		direct bool
	}{
		{"never, cold", DirectNever, false, 1 << 20, false},
		{"where cold, cold", DirectCold, false, 1 << 20, true},
		{"where cold, cold and larger than a block", DirectCold, false, size, true},
		{"where cold, small", DirectCold, false, minDirectBytes - 1, false},
		{"where cold, hot", DirectCold, true, 1 << 20, false},
		{"always, hot and small", DirectAlways, true, 10, true},
	}
	for _, mode := range []Mode{ModePread, ModeUring} {
		for _, c := range cases {
			t.Run(string(mode)+" "+c.name, func(t *testing.T) {
				if mode == ModeUring {
					requireUring(t)
				}
				fd, content := testFile(t, t.TempDir(), size)
				f := directFileFor(t, fd, c.policy)
				if evict(t, fd); f.cached(&counters{}, 0, 4096) && !f.isRefused() {
					t.Skip("the page cache can't be emptied here")
				}
				if f.isRefused() && c.policy == DirectCold {
					t.Skip("no cachestat here")
				}
				e := openEngineAs(t, mode, string(mode))
				direct := func(off int64) bool {
					before := e.Status().DirectReads
					r := &Request{File: f, OffsetBytes: off, Buf: make([]byte, c.length)}
					want := wanted(content, off, c.length)
					require.Equal(t, []result{{n: len(want)}}, readAll(t, e, []*Request{r}))
					require.True(t, bytes.Equal(want, r.Buf[:len(want)]))
					return e.Status().DirectReads > before
				}
				for _, off := range []int64{0, 4096, 12_345} {
					if c.hot && !c.direct {
						require.True(t, untilHot(t, fd, func() bool { return !direct(off) }))
					} else {
						require.Equal(t, c.direct, direct(off))
					}
				}
				if c.direct && !c.hot {
					require.False(t, f.cached(&counters{}, 0, 1<<20), "direct reads leave nothing in the page cache")
				}
			})
		}
	}
}

func TestAlignedReadsNeedNoCopy(t *testing.T) {
	requireUring(t)
	fd, content := testFile(t, t.TempDir(), 1<<20)
	f := directFileFor(t, fd, DirectAlways)
	e := openEngineAs(t, ModeUring, "uring")
	buf, err := Map(1 << 20)
	require.NoError(t, err)
	defer func() { require.NoError(t, Unmap(buf)) }()
	require.Equal(t, []result{{n: 1 << 20}}, readAll(t, e, []*Request{{File: f, Buf: buf}}))
	require.True(t, bytes.Equal(content, buf))
	require.EqualValues(t, 1, e.Status().DirectReads)
	require.Nil(t, e.(*engine).reader.(*ringReader).owner.blocks.memory, "no block was needed")
}

// TestFilesThatRefuseDirectReadsAreReadBuffered uses a file that was opened directly and whose
// alignments are wrong: the kernel answers EINVAL.
func TestFilesThatRefuseDirectReadsAreReadBuffered(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == ModeUring {
				requireUring(t)
			}
			fd, content := testFile(t, t.TempDir(), 300_000)
			f := directFileFor(t, fd, DirectAlways)
			f.direct.Load().offsetAlignment, f.direct.Load().memoryAlignment = 1, 1
			e := openEngineAs(t, mode, string(mode))
			var requests []*Request
			for i := range 100 {
				requests = append(requests, &Request{File: f, OffsetBytes: int64(1 + i*7), Buf: make([]byte, 200_001)})
			}
			for i, got := range readAll(t, e, requests) {
				require.Equal(t, result{n: 200_001}, got)
				require.True(t, bytes.Equal(wanted(content, requests[i].OffsetBytes, 200_001), requests[i].Buf))
			}
			require.Equal(t, map[string]uint64{"the file system refused a direct read": 1}, e.Status().NotDirect)
			require.Zero(t, e.Status().DirectReads)
		})
	}
}

func TestMissingSupportForDirectReadsIsDetected(t *testing.T) {
	directory := NewFile(openFD(t, t.TempDir(), unix.O_RDONLY), DirectAlways)
	var c counters
	for range 2 {
		require.False(t, directory.readsDirectly(&c, 0, 1<<20))
	}
	require.Equal(t, map[string]uint64{"the file can't be opened for direct reads": 1}, c.status("", "").NotDirect)
}

func TestOnlyUnalignedPartsOfLargeDirectReadAreCopied(t *testing.T) {
	fd, _ := testFile(t, t.TempDir(), 100)
	f := directFileFor(t, fd, DirectAlways)
	d := &directFile{fd: f.direct.Load().fd, offsetAlignment: 512, memoryAlignment: 512}
	memory, err := Map(HugePageBytes)
	require.NoError(t, err)
	defer func() { require.NoError(t, Unmap(memory)) }()
	cases := []struct {
		name string
		off  int64
		buf  []byte
		want int
	}{
		{"all aligned", 1024, memory[512:4096], 3584},
		{"offset not", 1023, memory, 0},
		{"memory not", 1024, memory[1:], 0},
		{"small and its size not", 0, memory[:minStraightBytes-1], 0},
		{"large and its size not", 0, memory[:minStraightBytes+513], minStraightBytes + 512},
		{"smaller than a sector", 0, memory[:511], 0},
	}
	for _, c := range cases {
		require.Equal(t, c.want, d.straight(c.off, c.buf), c.name)
	}
}

func TestDirectReadsOfAnySizeIntoAlignedMemoryAreComplete(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == ModeUring {
				requireUring(t)
			}
			const size = 1<<20 + 4099 // the file's last block is incomplete
			fd, content := testFile(t, t.TempDir(), size)
			f := directFileFor(t, fd, DirectAlways)
			e := openEngineAs(t, mode, string(mode))
			memory, err := Map(HugePageBytes)
			require.NoError(t, err)
			defer func() { require.NoError(t, Unmap(memory)) }()
			for _, length := range []int{minStraightBytes + 1, minStraightBytes + 4097, 1<<20 + 1, size, size + 1, HugePageBytes - 1} {
				for _, off := range []int64{0, 4096, 1 << 20} {
					clear(memory)
					want := wanted(content, off, length)
					require.Equal(t, []result{{n: len(want)}}, readAll(t, e, []*Request{{File: f, OffsetBytes: off, Buf: memory[:length:length]}}))
					require.True(t, bytes.Equal(want, memory[:len(want)]))
					require.Equal(t, make([]byte, len(memory)-length), memory[length:], "nothing is written behind the buffer")
				}
			}
			require.EqualValues(t, 18, e.Status().DirectReads)
		})
	}
}

var errChanged = errors.New("changed")

func TestReadsFailOnlyIfVerificationOfTheirFileFails(t *testing.T) {
	for _, mode := range []Mode{ModePread, ModeUring} {
		for _, policy := range []Direct{DirectNever, DirectCold, DirectAlways} {
			if mode == ModeUring {
				requireUring(t)
			}
			e := openEngineAs(t, mode, string(mode))
			fd, _ := testFile(t, t.TempDir(), 300_000)
			var verified atomic.Int64
			changed, good, plain := NewFile(fd, policy), NewFile(fd, policy), NewFile(fd, policy)
			changed.VerifyWith(func() error { return errChanged })
			good.VerifyWith(func() error { verified.Add(1); return nil })
			for range 20 { // of the first requests of each file, and of many
				before := verified.Load()
				var requests []*Request
				for i := range 50 {
					for _, f := range []*File{changed, good, plain, changed} {
						requests = append(requests, &Request{File: f, OffsetBytes: int64(i) * 512, Buf: make([]byte, 700)})
					}
				}
				for i, got := range readAll(t, e, requests) {
					want := result{n: 700}
					if requests[i].File == changed {
						want.err = errChanged
					}
					require.Equal(t, want, got)
				}
				require.Greater(t, verified.Load(), before, "verified after each was submitted")
			}
			require.EqualValues(t, 2000, e.Status().Errors)
			require.EqualValues(t, 2000, e.Status().Reads)

			require.False(t, e.ReadNow(&Request{File: changed, Buf: make([]byte, 10), Done: notToBeCalled}))
			before := verified.Load()
			if e.ReadNow(&Request{File: good, Buf: make([]byte, 10), Done: notToBeCalled}) {
				require.Greater(t, verified.Load(), before)
			}
			for _, f := range []*File{changed, good, plain} {
				closeDirect(t, f)
			}
		}
	}
}

// TestOneVerificationServesReadsThatEndedBeforeIt checks the order that verification relies on: all
// reads of the list, then the verification, then their Dones.
func TestOneVerificationServesReadsThatEndedBeforeIt(t *testing.T) {
	var events []string
	file := func(name string) *File {
		f := NewFile(-1, DirectNever)
		f.VerifyWith(func() error { events = append(events, "look at "+name); return nil })
		return f
	}
	request := func(f *File, name string) *Request {
		return &Request{File: f, Done: func(int, error) { events = append(events, name) }}
	}
	a, b := file("a"), file("b")
	var e ending
	var c counters
	e.add(request(a, "a1"), 1, nil)
	e.add(request(a, "a2"), 1, nil)
	e.add(request(b, "b1"), 1, nil)
	e.add(request(nil, "plain"), 1, nil)
	e.add(request(b, "b2"), 5, errChanged)
	require.Equal(t, 9, e.bytes)
	require.Empty(t, events, "nothing is done before")
	e.complete(&c)
	require.Equal(t, []string{"look at a", "a1", "a2", "look at b", "b1", "plain", "b2"}, events)
	require.Zero(t, e.bytes)
	require.EqualValues(t, 1, c.errors.Load(), "a good verdict takes no error away")

	events = nil
	e.add(request(a, "a3"), 1, nil)
	e.complete(&c)
	require.Equal(t, []string{"look at a", "a3"}, events, "what ended later is looked at anew")
	e.complete(&c)
	require.Len(t, events, 2)
}
