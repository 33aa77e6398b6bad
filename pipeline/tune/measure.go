package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// inFlightBytes is how much the engine submits to the kernel at a time (package uring): deeper
// cells would measure the same again.
const inFlightBytes = 32 << 20

// meter measures cells. It must not be used concurrently.
type meter struct {
	engine uring.Engine
	data   *data
	memory []byte // for all buffers, in huge pages if available
	random *rand.Rand
	// cold makes the meter evict the data from the page cache before each cell, because reads can't
	// bypass it.
	cold bool
	// seeks makes the meter read from all of the data, warm or not, because the storage is a disk,
	// which seeks farther the more data there is.
	seeks bool
}

func newMeter(d *data) (*meter, error) {
	memory, err := uring.Map(inFlightBytes)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(memory); i += blockBytes {
		memory[i] = 1 // so that no cell pays for allocating the pages
	}
	engine, err := uring.Open(uring.ModeAuto)
	if err != nil {
		_ = uring.Unmap(memory)
		return nil, err
	}
	return &meter{engine: engine, data: d, memory: memory, random: rand.New(rand.NewPCG(1, 2))}, nil
}

func (m *meter) close() error {
	err := m.engine.Close()
	if err := uring.Unmap(m.memory); err != nil {
		return err
	}
	return err
}

// place returns a random place for a read of that size.
func (m *meter) place(size int64) (*uring.File, int64) {
	at := m.random.Int64N(m.data.bytes)
	for _, r := range m.data.regions {
		if at < r.bytes {
			blocks := (r.bytes - size) / blockBytes
			return r.file, m.random.Int64N(blocks+1) * blockBytes
		}
		at -= r.bytes
	}
	panic("the regions have fewer bytes than their sum")
}

// reading is a request that is reused.
type reading struct {
	request uring.Request
	n       int
	err     error
}

// flight keeps depth reads of one size in the engine. next sets where a read begins, and returns
// false if there are no more; ended is called with the length of each completed read, and returns
// whether to continue. flight returns when no read is in flight.
func (m *meter) flight(ctx context.Context, size int64, depth int, next func(*uring.Request) bool, ended func(n int) bool) error {
	done := make(chan *reading, depth)
	batch := make([]*uring.Request, 0, depth)
	readings := make([]reading, depth)
	flying := 0
	add := func(r *reading) {
		if next(&r.request) {
			batch = append(batch, &r.request)
			flying++
		}
	}
	for i := range readings {
		r := &readings[i]
		r.request.Buf = m.memory[int64(i)*size:][:size]
		r.request.Done = func(n int, err error) { r.n, r.err = n, err; done <- r }
		add(r)
	}
	m.engine.Submit(batch)
	var failed error
	for more := true; flying > 0; {
		batch = batch[:0]
		r := <-done
		for {
			flying--
			switch {
			case failed != nil:
			case r.err != nil:
				failed = fmt.Errorf("read %d bytes at %d: %w", size, r.request.OffsetBytes, r.err)
			case r.n < int(size):
				failed = fmt.Errorf("read %d bytes at %d: the file ended after %d: it has changed meanwhile", size, r.request.OffsetBytes, r.n)
			default:
				failed = ctx.Err()
				more = ended(r.n) && more
			}
			if more && failed == nil {
				add(r)
			}
			if len(done) == 0 {
				break
			}
			r = <-done
		}
		if len(batch) > 0 {
			m.engine.Submit(batch)
		}
	}
	return failed
}

// warmUp reads the data from front to back, so that the host's cache of its guests' disks is as
// warm for the first cell as for the last. If the time is too short for all of it, only the part
// that was read is measured, at least least bytes.
func (m *meter) warmUp(ctx context.Context, limit time.Duration, least int64, progress func(done int64)) error {
	const size, depth = 1 << 20, 16
	began := time.Now()
	region, at, done := 0, int64(0), int64(0)
	next := func(r *uring.Request) bool {
		for region < len(m.data.regions) && at+size > m.data.regions[region].bytes {
			region, at = region+1, 0
		}
		if region == len(m.data.regions) || done >= least && time.Since(began) > limit {
			return false
		}
		r.File, r.OffsetBytes = m.data.regions[region].file, at
		at += size
		return true
	}
	err := m.flight(ctx, size, depth, next, func(n int) bool {
		done += int64(n)
		progress(done)
		return true
	})
	if err == nil && region < len(m.data.regions) && !m.seeks {
		m.keep(region, at, least/2)
	}
	return err
}

// keep keeps only the regions before the given one, and its first bytes if they are at least least.
func (m *meter) keep(region int, bytes, least int64) {
	d := m.data
	d.bytes = 0
	for i := range d.regions {
		r := &d.regions[i]
		switch {
		case i == region && bytes >= least:
			r.bytes = bytes
		case i >= region:
			r.bytes = 0
		}
		d.bytes += r.bytes
	}
}

// cell measures the throughput of random reads, in bytes per second, for about as long as limit and
// at least for as many reads as are in flight.
func (m *meter) cell(ctx context.Context, size int64, depth int, limit time.Duration) (float64, error) {
	if m.cold {
		for _, r := range m.data.regions {
			_ = unix.Fadvise(r.file.FD(), 0, 0, unix.FADV_DONTNEED)
		}
	}
	began := time.Now()
	var took time.Duration
	var reads, bytes int64
	err := m.flight(ctx, size, depth, func(r *uring.Request) bool {
		r.File, r.OffsetBytes = m.place(size)
		return true
	}, func(n int) bool {
		if took > 0 {
			return false // reads still in flight do not count
		}
		reads++
		bytes += int64(n)
		if e := time.Since(began); e >= limit && reads >= int64(depth) {
			took = e
		}
		return took == 0
	})
	if err != nil {
		return 0, err
	}
	return float64(bytes) / took.Seconds(), nil
}

const (
	copyBytes  = 64 << 10 // at a time
	sliceBytes = 4 << 20  // timed together
	copySlices = 16
)

// copyRate returns the speed, in bytes per second, at which one processor copies memory that is not
// in its first-level caches, some pages at a time between random places: this is how gathered data
// is copied to its destination. It is the median of slices of about a millisecond, one or two of
// which may have been interrupted.
func (m *meter) copyRate() float64 {
	half := len(m.memory) / 2
	var rates []float64
	for range copySlices {
		began := time.Now()
		for range sliceBytes / copyBytes {
			from, to := m.random.IntN(half-copyBytes), half+m.random.IntN(half-copyBytes)
			copy(m.memory[to:to+copyBytes], m.memory[from:])
		}
		rates = append(rates, sliceBytes/time.Since(began).Seconds())
	}
	return median(rates)
}
