package uring

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestFilesOfAnySizeAreReadCompletely(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		onFileSystems(t, func(t *testing.T, dir string) {
			e := v.open(t)
			for _, size := range []int{0, 1, 511, 4095, 4096, 4097, 65537, 1<<20 + 13} {
				fd, content := testFile(t, dir, size)
				buf := make([]byte, size+100)
				got := readAll(t, e, []*Request{{FD: fd, Buf: buf}})
				require.NoError(t, got[0].err)
				require.Equal(t, size, got[0].n, "the file ends at %d", size)
				require.True(t, bytes.Equal(content, buf[:size]))
				require.Equal(t, make([]byte, 100), buf[size:], "nothing is written behind the end")
			}
		})
	})
}

func TestAnyNumberOfRangesReturnsBytesOfFile(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		dir := t.TempDir()
		type file struct {
			fd      int
			content []byte
		}
		var files []file
		for _, size := range []int{0, 3, 5000, 300_001} {
			fd, content := testFile(t, dir, size)
			files = append(files, file{fd, content})
		}
		rapid.Check(t, func(t *rapid.T) {
			requests := make([]*Request, rapid.IntRange(1, 400).Draw(t, "requests"))
			contents := make([][]byte, len(requests))
			lengths := rapid.SampledFrom([]int{1, 100, 4096, 70_000}).Draw(t, "longest")
			random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			for i := range requests {
				f := files[random.IntN(len(files))]
				contents[i] = f.content
				requests[i] = &Request{
					FD:          f.fd,
					OffsetBytes: random.Int64N(int64(len(f.content) + 10)),
					Buf:         make([]byte, 1+random.IntN(lengths)),
				}
			}
			for i, got := range readAll(t, e, requests) {
				r := requests[i]
				require.NoError(t, got.err)
				want := wanted(contents[i], r.OffsetBytes, len(r.Buf))
				require.Equal(t, len(want), got.n)
				require.True(t, bytes.Equal(want, r.Buf[:got.n]), "bytes at %d", r.OffsetBytes)
			}
		})
	})
}

func TestRequestMayExceedInFlightLimit(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		const size = maxRingBytes + 4097
		fd, content := testFile(t, t.TempDir(), size)
		large, err := Map(size + 10)
		require.NoError(t, err)
		defer func() { require.NoError(t, Unmap(large)) }()
		requests := []*Request{{FD: fd, Buf: large}}
		for i := range 300 {
			requests = append(requests, &Request{FD: fd, OffsetBytes: int64(i * 1000), Buf: make([]byte, 5000)})
		}
		for i, got := range readAll(t, e, requests) {
			r := requests[i]
			require.NoError(t, got.err)
			require.True(t, bytes.Equal(wanted(content, r.OffsetBytes, len(r.Buf)), r.Buf[:got.n]))
		}
	})
}

func TestErrorsReachOnlyTheirRequest(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		onFileSystems(t, func(t *testing.T, dir string) {
			e := v.open(t)
			fd, content := testFile(t, dir, 10_000)
			writeOnly := openFD(t, filepath.Join(dir, "file-10000"), unix.O_WRONLY)
			directory := openFD(t, dir, unix.O_RDONLY)
			memory := openFD(t, "/proc/self/mem", unix.O_RDONLY) // nothing is mapped at its start
			cases := []struct {
				request Request
				want    error
			}{
				{Request{FD: -1, Buf: make([]byte, 10)}, syscall.EBADF},
				{Request{FD: writeOnly, Buf: make([]byte, 10)}, syscall.EBADF},
				{Request{FD: directory, Buf: make([]byte, 10)}, syscall.EISDIR},
				{Request{FD: memory, Buf: make([]byte, 10)}, syscall.EIO},
				{Request{FD: fd, Buf: make([]byte, 10), OffsetBytes: -1}, syscall.EINVAL},
				{Request{FD: fd, Buf: nil}, errEmptyBuffer},
			}
			var requests []*Request
			for round := range 30 {
				for i := range cases {
					failing := cases[i].request
					good := Request{FD: fd, OffsetBytes: int64(round * 7), Buf: make([]byte, 4000)}
					requests = append(requests, &failing, &good)
				}
			}
			for i, got := range readAll(t, e, requests) {
				if i%2 == 0 {
					require.ErrorIs(t, got.err, cases[i/2%len(cases)].want)
					require.Zero(t, got.n)
					continue
				}
				require.NoError(t, got.err)
				require.True(t, bytes.Equal(wanted(content, requests[i].OffsetBytes, 4000), requests[i].Buf[:got.n]))
			}
			status := e.Status()
			require.EqualValues(t, len(requests)/2, status.Errors)
			require.EqualValues(t, len(requests)/2, status.Reads)
		})
	})
}

// More requests than the kernel has at a time, so that some wait.
func TestQueuedRequestsNoLongerWantedAreNotRead(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		onFileSystems(t, func(t *testing.T, dir string) {
			e := v.open(t)
			fd, content := testFile(t, dir, 1<<20)
			const size, n = 4000, 600
			requests := make([]*Request, n)
			asked := make([]atomic.Int32, n)
			for i := range requests {
				requests[i] = &Request{FD: fd, OffsetBytes: int64(i * 1000), Buf: bytes.Repeat([]byte{7}, size), Wanted: func() bool {
					asked[i].Add(1)
					return i%3 > 0
				}}
			}
			for i, got := range readAll(t, e, requests) {
				if i%3 > 0 {
					require.NoError(t, got.err)
					require.True(t, bytes.Equal(wanted(content, requests[i].OffsetBytes, size), requests[i].Buf[:got.n]))
					continue
				}
				require.Equal(t, ErrUnwanted, got.err)
				require.Zero(t, got.n)
				require.Equal(t, bytes.Repeat([]byte{7}, size), requests[i].Buf)
				require.EqualValues(t, 1, asked[i].Load(), "no is no")
			}
			status := e.Status()
			require.EqualValues(t, n/3, status.Unwanted)
			require.EqualValues(t, n-n/3, status.Reads)
			require.Zero(t, status.Errors)
			require.Zero(t, status.InFlight)
			require.Zero(t, status.InFlightBytes)
		})
	})
}

func TestDoneMaySubmit(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		fd, content := testFile(t, t.TempDir(), 50_000)
		const chains, links = 300, 20 // more chains than an engine reads at a time
		var all sync.WaitGroup
		var wrong atomic.Int64
		for chain := range chains {
			all.Add(1)
			left := links
			r := &Request{FD: fd, OffsetBytes: int64(chain), Buf: make([]byte, 100)}
			r.Done = func(n int, err error) {
				if err != nil || !bytes.Equal(r.Buf[:n], wanted(content, r.OffsetBytes, 100)) {
					wrong.Add(1)
				}
				left--
				if left == 0 {
					all.Done()
					return
				}
				r.OffsetBytes += 1000
				e.Submit([]*Request{r})
			}
			e.Submit([]*Request{r})
		}
		all.Wait()
		require.Zero(t, wrong.Load())
	})
}

func TestManyGoroutinesMaySubmit(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		fd, content := testFile(t, t.TempDir(), 100_000)
		const submitters, batches, batch = 8, 25, 13
		var all sync.WaitGroup
		var read, wrong atomic.Int64
		for s := range submitters {
			all.Go(func() {
				var mine sync.WaitGroup
				requests := make([]*Request, batch)
				for b := range batches {
					for i := range requests {
						r := &Request{FD: fd, OffsetBytes: int64((s*batches+b)*batch+i) * 37, Buf: make([]byte, 333)}
						mine.Add(1)
						r.Done = func(n int, err error) {
							if err != nil || !bytes.Equal(r.Buf[:n], wanted(content, r.OffsetBytes, 333)) {
								wrong.Add(1)
							}
							read.Add(int64(n))
							mine.Done()
						}
						requests[i] = r
					}
					e.Submit(requests) // the slice is reused at once
				}
				mine.Wait()
			})
		}
		all.Wait()
		require.Zero(t, wrong.Load())
		status := e.Status()
		require.EqualValues(t, submitters*batches*batch, status.Reads)
		require.EqualValues(t, read.Load(), status.ReadBytes)
		require.Zero(t, status.InFlight)
		require.Zero(t, status.InFlightBytes)
		require.Zero(t, status.Errors)
	})
}

func TestCloseWaitsForRequestsInFlight(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		fd, content := testFile(t, t.TempDir(), 1<<20)
		for range 5 {
			e := v.open(t)
			var done, wrong atomic.Int64
			requests := make([]*Request, 600)
			for i := range requests {
				r := &Request{FD: fd, OffsetBytes: int64(i), Buf: make([]byte, 30_000)}
				r.Done = func(n int, err error) {
					if err != nil || !bytes.Equal(r.Buf[:n], wanted(content, r.OffsetBytes, len(r.Buf))) {
						wrong.Add(1)
					}
					done.Add(1)
				}
				requests[i] = r
			}
			e.Submit(requests)
			require.NoError(t, e.Close())
			require.EqualValues(t, len(requests), done.Load())
			require.Zero(t, wrong.Load())
			require.NoError(t, e.Close(), "closing again does nothing")
		}
	})
}

func TestSubmitAfterCloseReportsErrClosedAsynchronously(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		e := v.open(t)
		fd, _ := testFile(t, t.TempDir(), 100)
		require.NoError(t, e.Close())
		var mu sync.Mutex // held during Submit, and locked by Done
		errs := make(chan error, 3)
		requests := make([]*Request, cap(errs))
		for i := range requests {
			requests[i] = &Request{FD: fd, Buf: make([]byte, 10), Done: func(n int, err error) {
				mu.Lock()
				defer mu.Unlock()
				errs <- err
			}}
		}
		mu.Lock()
		e.Submit(requests)
		clear(requests) // the slice belongs to the submitter
		mu.Unlock()
		for range cap(errs) {
			require.ErrorIs(t, <-errs, ErrClosed)
		}
	})
}

func TestEveryRequestCompletesOnceWhenCloseAndSubmitRace(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		fd, content := testFile(t, t.TempDir(), 5000)
		for range 20 {
			e := v.open(t)
			var all, done sync.WaitGroup
			var wrong atomic.Int64
			for range 3 {
				all.Go(func() {
					for i := range 20 {
						done.Add(1)
						r := &Request{FD: fd, OffsetBytes: int64(i), Buf: make([]byte, 64)}
						r.Done = func(n int, err error) {
							if err != ErrClosed && (err != nil || !bytes.Equal(r.Buf[:n], wanted(content, r.OffsetBytes, 64))) {
								wrong.Add(1)
							}
							done.Done()
						}
						e.Submit([]*Request{r})
					}
				})
			}
			for range 2 {
				all.Go(func() { _ = e.Close() })
			}
			all.Wait()
			done.Wait()
			require.Zero(t, wrong.Load())
		}
	})
}

func TestEnginesReleaseTheirResources(t *testing.T) {
	forEachEngine(t, func(t *testing.T, v variant) {
		fd, _ := testFile(t, t.TempDir(), 5000)
		cycle := func() {
			e, err := Open(v.mode)
			require.NoError(t, err)
			r := &Request{FD: fd, Buf: make([]byte, 5000)}
			if v.files {
				r.File = NewFile(fd, v.policy)
				defer closeDirect(t, r.File)
			}
			readAll(t, e, []*Request{r})
			require.NoError(t, e.Close())
		}
		cycle() // creates everything that is created once and stays
		const cycles = 200
		threads, descriptors := entries(t, "/proc/self/task"), entries(t, "/proc/self/fd")
		for range cycles {
			cycle()
		}
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		require.NotContains(t, string(maps), "[io_uring]", "no mapping of a ring is left")
		status, err := os.ReadFile("/proc/self/status")
		require.NoError(t, err)
		require.Regexp(t, `VmPin:\s+0 kB`, string(status))
		// Not more: the collector may close descriptors that an earlier test has left to it.
		require.LessOrEqual(t, entries(t, "/proc/self/fd"), descriptors)
		// A thread ends a little after its goroutine, and the runtime may start a few of its own.
		require.Less(t, entries(t, "/proc/self/task"), threads+cycles/2)
	})
}

func TestUnknownModesAreRefused(t *testing.T) {
	_, err := Open("aio")
	require.EqualError(t, err, `io engine "aio" is unknown: use auto, uring or pread`)
}

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
			require.Zero(t, e.Status().Stuck)
		})
	}
}

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
