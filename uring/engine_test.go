package uring

import (
	"bytes"
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
