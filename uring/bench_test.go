package uring

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// benchBytes is the size of the benchmarks' file.
const benchBytes = 128 << 20

// BenchmarkRead reads a whole file in random order, one pass per operation: with a loop of preads
// in one goroutine, and with the engines. The reads are like those of records, at any offset.
//
// hot is data in the page cache, cold is not, direct bypasses it. The disk may have a cache of its
// own. CPU counts all threads.
func BenchmarkRead(b *testing.B) {
	fd, _ := testFile(b, b.TempDir(), benchBytes)
	require.NoError(b, unix.Fdatasync(fd))
	for _, data := range []string{"hot", "cold", "direct"} {
		for _, c := range []struct{ size, depth int }{{4 << 10, 32}, {4 << 10, 1}, {128 << 10, 32}, {1 << 20, 16}} {
			if data == "cold" && c.size < minDirectBytes || data == "direct" && c.depth == 1 {
				continue
			}
			for _, engine := range []string{"loop", "pread", "uring"} {
				b.Run(fmt.Sprintf("data=%s/read=%dKiB/depth=%d/engine=%s", data, c.size>>10, c.depth, engine), func(b *testing.B) {
					r := newBenchReader(b, fd, data, c.size, c.depth)
					defer r.close(b)
					if engine == "loop" {
						r.run(b, data, func() { r.loop(b) })
						return
					}
					e, err := Open(Mode(engine))
					if err != nil {
						b.Skip(err)
					}
					defer func() { require.NoError(b, e.Close()) }()
					r.run(b, data, func() { r.through(b, e) })
				})
			}
		}
	}
}

// benchReader is one pass over a file in pieces, in an order that is the same for all.
type benchReader struct {
	file    *File
	size    int
	depth   int
	offsets []int64
	memory  []byte
}

func newBenchReader(b *testing.B, fd int, data string, size, depth int) *benchReader {
	policy := DirectNever
	if data == "direct" {
		policy = DirectAlways
	}
	r := &benchReader{file: NewFile(fd, policy), size: size, depth: depth}
	for off := int64(333); off+int64(size) <= benchBytes; off += int64(size) {
		r.offsets = append(r.offsets, off)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(r.offsets), func(i, j int) {
		r.offsets[i], r.offsets[j] = r.offsets[j], r.offsets[i]
	})
	var err error
	r.memory, err = Map(size * depth)
	require.NoError(b, err)
	return r
}

func (r *benchReader) close(b *testing.B) {
	closeDirect(b, r.file)
	require.NoError(b, Unmap(r.memory))
}

func (r *benchReader) run(b *testing.B, data string, pass func()) {
	b.SetBytes(int64(len(r.offsets) * r.size))
	b.ReportAllocs()
	var cpu time.Duration
	if data == "hot" {
		pass()
	}
	for b.Loop() {
		if data != "hot" {
			b.StopTimer()
			require.NoError(b, unix.Fadvise(r.file.fd, 0, 0, unix.FADV_DONTNEED))
			b.StartTimer()
		}
		before := cpuTime(b)
		pass()
		cpu += cpuTime(b) - before
	}
	gib := float64(b.N) * float64(len(r.offsets)*r.size) / (1 << 30)
	b.ReportMetric(cpu.Seconds()/gib, "cpu-s/GiB")
}

// loop is the baseline: pread in one goroutine. Direct reads are also of the aligned range around
// the wanted bytes.
func (r *benchReader) loop(b *testing.B) {
	if r.file.policy == DirectNever {
		for _, off := range r.offsets {
			n, err := pread(r.file.fd, r.memory[:r.size], off)
			if err != nil || n != r.size {
				b.Fatal(n, err)
			}
		}
		return
	}
	d := r.file.openDirect(&counters{})
	if d == nil {
		b.Skip("no direct reads in the temporary directory")
	}
	block, err := Map(blockBytes)
	require.NoError(b, err)
	for _, off := range r.offsets {
		j := job{request: &Request{OffsetBytes: off, Buf: r.memory[:r.size]}}
		p := directPart(d, &j)
		n, err := preadOnce(d.fd, block[:p.size], p.off)
		if err != nil || p.deliver(&j, block, n) == 0 {
			b.Fatal(n, err)
		}
	}
	require.NoError(b, Unmap(block))
}

// through reads through an engine, with a fixed number of requests at a time.
func (r *benchReader) through(b *testing.B, e Engine) {
	var next, wrong atomic.Int64
	ended := make(chan struct{}, r.depth)
	requests := make([]*Request, r.depth)
	for i := range requests {
		q := &Request{File: r.file, Buf: r.memory[i*r.size:][:r.size], OffsetBytes: r.offsets[i]}
		again := []*Request{q}
		q.Done = func(n int, err error) {
			if err != nil || n != r.size {
				wrong.Add(1)
			}
			k := next.Add(1)
			if k >= int64(len(r.offsets)) {
				ended <- struct{}{}
				return
			}
			q.OffsetBytes = r.offsets[k]
			e.Submit(again)
		}
		requests[i] = q
	}
	next.Store(int64(r.depth) - 1)
	e.Submit(requests)
	for range requests {
		<-ended
	}
	require.Zero(b, wrong.Load())
}

func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
