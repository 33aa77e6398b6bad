package tune

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// inFlightBytes is what the engine has with the kernel at a time (package
// uring): deeper cells would measure the same again.
const inFlightBytes = 32 << 20

// meter measures cells. It is not for concurrent use.
type meter struct {
	engine uring.Engine
	data   *data
	memory []byte // of all buffers, in huge pages where there are any
	random *rand.Rand
	// cold says that the page cache is to be emptied of the data before each
	// cell, as reads can't bypass it.
	cold bool
	// seeks says that all of the data is to be read from, warm or not, as the
	// storage is a disk that seeks the further the more data there is.
	seeks bool
}

func newMeter(d *data) (*meter, error) {
	memory, err := uring.Map(inFlightBytes)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(memory); i += blockBytes {
		memory[i] = 1 // so that no cell pays for the pages
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

// place draws where a read of so many bytes is to begin.
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

// reading is one request, again and again.
type reading struct {
	request uring.Request
	n       int
	err     error
}

// flight keeps depth reads of one size with the engine. next says where each
// begins, nil for no more; ended is told of each that has been read, and says
// whether to go on. It returns when none is in flight.
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

// warmUp reads the data from front to back, so that what a host keeps of its
// guests' disks is as warm for the first cell as for the last. Where the time is
// too short for all, what it came to is what is measured, at least least bytes.
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

// keep leaves only the regions before one, and the first bytes of that if they
// are no fewer than least.
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

// cell measures bytes a second of random reads, for about as long as limit and
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
			return false // what is still in flight does not count
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
	sliceBytes = 4 << 20  // that are timed together
	copySlices = 16
)

// copyRate is at how many bytes a second memory is copied that is not in the
// processor's first caches, some pages at a time from anywhere to anywhere, by one
// processor: as what is gathered is copied to its places. It is the median of some
// slices of a millisecond or so, of which others may have interrupted one or two.
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
