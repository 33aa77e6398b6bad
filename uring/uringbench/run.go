package uringbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// Run runs a job with its own engine. Its memory is mapped and touched, and the engine started,
// before the clock starts. Each further read is submitted from the Done of an earlier one, as in
// fio's loop. A program that waits for a single read elsewhere also pays for waking a goroutine.
//
// When ctx ends, Run waits for the reads in flight and returns ctx's error.
func Run(ctx context.Context, j Job) (r Result, err error) {
	f, numBlocks, err := j.open()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	memory, err := uring.Map(j.Depth * j.BlockBytes)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, uring.Unmap(memory)) }()
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	engine, err := uring.Open(j.Mode)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()

	l := &load{job: j, file: f, engine: engine, numBlocks: numBlocks, limit: j.limit()}
	stop := context.AfterFunc(ctx, l.stop)
	defer stop()
	r = l.run(memory)
	if err := errors.Join(ctx.Err(), l.err); err != nil {
		return r, err
	}
	if j.Direct && r.Status.DirectReads == 0 && r.Reads > 0 {
		return r, fmt.Errorf("%s: %w", j.Path, ErrNotDirect)
	}
	return r, nil
}

// limit bounds the number of a job's reads.
func (j Job) limit() int64 {
	if j.Bytes <= 0 {
		return 1<<63 - 1
	}
	return (j.Bytes-1)/int64(j.BlockBytes) + 1
}

// load is a running job. Reads are numbered as they are submitted, by any goroutine.
type load struct {
	job       Job
	file      *uring.File
	engine    uring.Engine
	numBlocks int64
	limit     int64

	stopped atomic.Bool
	next    atomic.Int64 // number of the next read
	done    atomic.Int64
	ended   sync.WaitGroup // chains of reads
	once    sync.Once
	err     error // of the first failed read
}

func (l *load) stop() { l.stopped.Store(true) }

func (l *load) fail(err error) {
	l.once.Do(func() { l.err = err })
	l.stop()
}

func (l *load) run(memory []byte) Result {
	size := l.job.BlockBytes
	if !l.warmUp(memory) {
		return Result{}
	}
	var first []*uring.Request
	for i := range l.job.Depth {
		if r := l.chain(memory[i*size:][:size]); l.position(r) {
			first = append(first, r)
		}
	}
	cpu, begin := cpuSeconds(), time.Now()
	if l.job.Duration > 0 {
		timer := time.AfterFunc(l.job.Duration, l.stop)
		defer timer.Stop()
	}
	if l.job.Inline {
		l.readInline(first[:1])
	} else {
		l.ended.Add(len(first))
		l.engine.Submit(first)
		l.ended.Wait()
	}
	r := Result{Seconds: time.Since(begin).Seconds(), CPUSeconds: cpuSeconds() - cpu, Status: l.engine.Status()}
	r.Reads = l.done.Load()
	r.Bytes = r.Reads * int64(size)
	return r
}

// warmUp reads as many blocks at once as the job will: the engine then creates what it creates at
// the first read of a kind.
func (l *load) warmUp(memory []byte) bool {
	size := l.job.BlockBytes
	var requests []*uring.Request
	for i := range l.job.Depth {
		r := &uring.Request{File: l.file, Buf: memory[i*size:][:size]}
		l.place(r, int64(i))
		r.Done = func(n int, err error) {
			l.report(r, n, err)
			l.ended.Done()
		}
		requests = append(requests, r)
	}
	l.ended.Add(len(requests))
	l.engine.Submit(requests)
	l.ended.Wait()
	l.done.Store(0)
	return l.err == nil
}

// chain returns a request that submits itself again and again.
func (l *load) chain(buf []byte) *uring.Request {
	r := &uring.Request{File: l.file, Buf: buf}
	again := []*uring.Request{r}
	r.Done = func(n int, err error) {
		l.report(r, n, err)
		if l.stopped.Load() || !l.position(r) {
			l.ended.Done()
			return
		}
		l.engine.Submit(again)
	}
	return r
}

// report counts a read that ended, or stops the job because of an error.
func (l *load) report(r *uring.Request, n int, err error) {
	switch {
	case err != nil:
		l.fail(fmt.Errorf("%s: read %d bytes at %d: %w", l.job.Path, len(r.Buf), r.OffsetBytes, err))
	case n != len(r.Buf):
		l.fail(fmt.Errorf("%s: the file ended after %d bytes", l.job.Path, r.OffsetBytes+int64(n)))
	default:
		l.done.Add(1)
	}
}

// readInline reads on the caller's goroutine, and submits only what ReadNow can't read.
func (l *load) readInline(one []*uring.Request) {
	r := one[0]
	answered := make(chan struct{}, 1)
	r.Done = func(n int, err error) {
		l.report(r, n, err)
		answered <- struct{}{}
	}
	for again := true; again && !l.stopped.Load(); again = l.position(r) {
		if l.engine.ReadNow(r) {
			l.done.Add(1)
			continue
		}
		l.engine.Submit(one)
		<-answered
	}
}

// position sets a request's offset, if there is something left to read.
func (l *load) position(r *uring.Request) bool {
	number := l.next.Add(1) - 1
	if number >= l.limit {
		return false
	}
	l.place(r, number)
	return true
}

// place sets a request's offset for a number.
func (l *load) place(r *uring.Request, number int64) {
	block := number
	if l.job.Random {
		block = int64(mix(uint64(number)) >> 1)
	}
	r.OffsetBytes = block%l.numBlocks*int64(l.job.BlockBytes) + l.job.ShiftBytes
}

// mix is that of splitmix64: random access then needs no lock, and is repeatable.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// cpuSeconds is what this process has used so far. The kernel's own threads (including those of
// io-wq, which belong to the process) are included as far as the kernel counts them.
func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0 // impossible
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
