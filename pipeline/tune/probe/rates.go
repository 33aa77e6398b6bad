package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// Plan specifies what Rates measures.
type Plan struct {
	ReadBytes []int64 // sizes of ranges
	Depths    []int   // requests at a time
	Duration  time.Duration
	// MostBytes bounds the bytes transferred, 0 means no bound: combinations for which two rounds
	// don't fit are left out, the largest first.
	MostBytes int64
	// Progress is called after each combination with the part that is done, 0…1. It may be nil.
	Progress func(done float64)
}

// FreeBytes is how much is transferred without asking the user.
const FreeBytes = 2 << 30

// DefaultPlan returns a plan with ranges of 256 KiB to 16 MiB, 16 to 256 at a time, for a minute.
func DefaultPlan() Plan {
	return Plan{
		ReadBytes: []int64{256 << 10, 1 << 20, 4 << 20, 16 << 20}, Depths: []int{16, 32, 64, 128, 256},
		Duration: time.Minute, MostBytes: FreeBytes,
	}
}

// trial is a combination, and how many bytes may be transferred for it.
type trial struct {
	readBytes int64
	depth     int
	mostBytes int64 // 0: no bound
}

// rounds is how often each connection is used at least if bytes are bounded.
const rounds = 2

// trials returns the combinations that fit, small ones first, and the others.
func (p Plan) trials() (in, out []trial) {
	for _, depth := range p.Depths {
		for _, size := range p.ReadBytes {
			in = append(in, trial{readBytes: size, depth: depth, mostBytes: rounds * size * int64(depth)})
		}
	}
	if p.MostBytes == 0 {
		for i := range in {
			in[i].mostBytes = 0
		}
		return in, nil
	}
	sort.SliceStable(in, func(i, j int) bool { return in[i].mostBytes < in[j].mostBytes })
	left := p.MostBytes
	for i, t := range in {
		if t.mostBytes > left {
			in, out = in[:i], in[i:]
			break
		}
		left -= t.mostBytes
	}
	for i := range in { // what is left over extends the measurements
		in[i].mostBytes += left / int64(len(in))
	}
	return in, out
}

// Rates is the result of measuring a service.
type Rates struct {
	Cells     []filesystem.Measurement `json:"measured"`
	Left      []filesystem.Measurement `json:"left_out,omitempty"` // combinations that were not measured, without rates
	Objects   int                      `json:"objects"`
	Bytes     int64                    `json:"bytes"`
	Requests  uint64                   `json:"requests"`
	Throttled uint64                   `json:"throttled"`
	Seconds   float64                  `json:"seconds"`
}

// Rates measures how fast ranges are transferred, at random places. It retries nothing; throttled
// requests are counted, and followed by a short pause.
func (s *Service) Rates(ctx context.Context, p Plan) (r Rates, err error) {
	objects, err := s.Objects(ctx)
	if err != nil {
		return r, err
	}
	r.Objects = len(objects)
	began := time.Now()
	in, out := p.trials()
	in = slices.DeleteFunc(in, func(t trial) bool {
		if t.readBytes > objects[0].SizeBytes {
			out = append(out, t)
			return true
		}
		return false
	})
	for _, t := range out {
		r.Left = append(r.Left, filesystem.Measurement{ReadBytes: t.readBytes, Depth: t.depth})
	}
	if len(in) == 0 {
		return r, fmt.Errorf("%s: no object has as many bytes as the smallest range to measure: name larger files", s.Name())
	}
	for i, t := range in {
		run := &run{service: s, trial: t, objects: objects[:large(objects, t.readBytes)]}
		rate, err := run.measure(ctx, time.Until(began.Add(p.Duration))/time.Duration(len(in)-i))
		r.Bytes, r.Requests, r.Throttled = r.Bytes+run.bytes.Load(), r.Requests+run.requests.Load(), r.Throttled+run.throttled.Load()
		if err != nil {
			return r, err
		}
		r.Cells = append(r.Cells, filesystem.Measurement{ReadBytes: t.readBytes, Depth: t.depth, BytesPerSecond: rate})
		if p.Progress != nil {
			p.Progress(float64(i+1) / float64(len(in)))
		}
	}
	r.Seconds = time.Since(began).Seconds()
	sort.Slice(r.Cells, func(i, j int) bool {
		a, b := &r.Cells[i], &r.Cells[j]
		return cmp.Or(cmp.Compare(a.ReadBytes, b.ReadBytes), cmp.Compare(a.Depth, b.Depth)) < 0
	})
	return r, nil
}

// large returns how many of objects, which are sorted, have at least n bytes.
func large(objects []remote.Listed, n int64) int {
	i := slices.IndexFunc(objects, func(l remote.Listed) bool { return l.SizeBytes < n })
	if i < 0 {
		return len(objects)
	}
	return i
}

// run is the measurement of one trial.
type run struct {
	service *Service
	trial   trial
	objects []remote.Listed

	asked     atomic.Int64 // bytes requested
	bytes     atomic.Int64 // bytes received
	requests  atomic.Uint64
	throttled atomic.Uint64
}

// leastTime is the least time that a trial gets, however late it is.
const leastTime = 100 * time.Millisecond

// measure returns the bytes per second. Connections are opened before the clock starts.
func (r *run) measure(ctx context.Context, length time.Duration) (bytesPerSecond float64, err error) {
	if err := r.all(ctx, func(ctx context.Context, random *rand.Rand) error { return r.ask(ctx, random, 1) }); err != nil {
		return 0, err
	}
	r.bytes.Store(0)
	timed, cancel := context.WithTimeout(ctx, max(length, leastTime))
	defer cancel()
	began := time.Now()
	err = r.all(timed, func(ctx context.Context, random *rand.Rand) error {
		for ctx.Err() == nil {
			if r.trial.mostBytes > 0 && r.asked.Add(r.trial.readBytes) > r.trial.mostBytes {
				return nil
			}
			if err := r.ask(ctx, random, r.trial.readBytes); err != nil {
				return err
			}
		}
		return nil
	})
	took := time.Since(began)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	return float64(r.bytes.Load()) / took.Seconds(), nil
}

// all runs f once for each concurrent request, and returns the first error that is not due to the
// end of the time.
func (r *run) all(ctx context.Context, f func(ctx context.Context, random *rand.Rand) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	var once sync.Once
	var first error
	for i := range r.trial.depth {
		work.Go(func() {
			err := f(inner, rand.New(rand.NewPCG(uint64(i), uint64(r.trial.readBytes))))
			if err != nil && inner.Err() == nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	work.Wait()
	return first
}

// throttlePause is how long a connection waits after it was throttled.
const throttlePause = 100 * time.Millisecond

// ask reads one random range. Bytes are counted as they arrive.
func (r *run) ask(ctx context.Context, random *rand.Rand, n int64) error {
	o := r.objects[random.IntN(len(r.objects))]
	off := random.Int64N(o.SizeBytes-n+1) &^ (4<<10 - 1)
	r.requests.Add(1)
	a, err := r.service.source.Open(ctx, o.Path, o.Validator, off, n)
	if err != nil {
		return remote.Explain(err)
	}
	defer func() { _ = a.Body.Close() }()
	switch {
	case a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable:
		r.throttled.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(throttlePause):
		}
		return nil
	case a.Status != http.StatusPartialContent && (a.Status != http.StatusOK || n != o.SizeBytes):
		return fmt.Errorf("%s: %w", o.Path, &remote.StatusError{Status: a.Status, Code: a.Code, RetryAfter: a.RetryAfter, Advice: a.Advice})
	}
	got, err := io.Copy(counter{&r.bytes}, io.LimitReader(a.Body, n))
	if err == nil && got != n {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w", o.Path, remote.Explain(err))
	}
	return err
}

// counter counts bytes and drops them.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// enough is the share of the best rate that counts as equally good: repeated measurements of one
// link differ by that much.
const enough = 0.9

// Derive returns the profile that follows from the measurements, and the reasons for users. It is
// pure; cells must not be empty.
//
// Requests cost money and time, so large ranges are split as little as possible: ReadBytes is the
// default, or more if nothing up to that size is fast enough, or less if larger ranges were
// measured and are slower. Depth is the smallest with which ranges of the smallest size reach their
// best rate, and InFlightBytes the smallest with which any combination reached the best rate.
func Derive(kind storage.Kind, cells []filesystem.Measurement, now time.Time) (p storage.Profile, why []string) {
	p = storage.DefaultProfile(kind)
	p.Tuned = now
	best, smallest, measured := cells[0], cells[0].ReadBytes, int64(0)
	for _, c := range cells {
		if c.BytesPerSecond > best.BytesPerSecond {
			best = c
		}
		smallest, measured = min(smallest, c.ReadBytes), max(measured, c.ReadBytes)
	}
	why = append(why, fmt.Sprintf("the most was %.0f MB/s, with ranges of %s, %d at a time", best.BytesPerSecond/1e6, size(best.ReadBytes), best.Depth))

	least, most, inFlight := best.ReadBytes, best.ReadBytes, best.ReadBytes*int64(best.Depth)
	for _, c := range cells {
		if c.BytesPerSecond >= enough*best.BytesPerSecond {
			least, most = min(least, c.ReadBytes), max(most, c.ReadBytes)
			inFlight = min(inFlight, c.ReadBytes*int64(c.Depth))
		}
	}
	switch {
	case most >= p.ReadBytes:
		p.ReadBytes = max(p.ReadBytes, least)
	case most < measured:
		p.ReadBytes = most
	}
	fast := fmt.Sprintf("ranges of %s to %s are about as fast", size(least), size(most))
	if least == most {
		fast = fmt.Sprintf("ranges of other sizes than %s are slower", size(least))
	}
	why = append(why, fmt.Sprintf("%s: reads of up to %s are one request", fast, size(p.ReadBytes)))

	small := shallowest(cells, smallest)
	p.Depth = small.Depth
	why = append(why, fmt.Sprintf("ranges of %s reach %.0f MB/s with %d at a time, and little more with more", size(smallest), small.BytesPerSecond/1e6, small.Depth))
	p.InFlightBytes = min(max(inFlight, 4*p.ReadBytes, leastInFlight), storage.DefaultProfile(kind).InFlightBytes)
	return p, why
}

// leastInFlight keeps a measurement of a brief moment from making readers slow: 64 MiB are 0.6 s of
// a link of 1 Gbit/s.
const leastInFlight = 64 << 20

// shallowest returns the cell of a size with the smallest depth that reaches enough of the size's
// best rate.
func shallowest(cells []filesystem.Measurement, readBytes int64) (found filesystem.Measurement) {
	best := 0.0
	for _, c := range cells {
		if c.ReadBytes == readBytes {
			best = max(best, c.BytesPerSecond)
		}
	}
	for _, c := range cells {
		if c.ReadBytes == readBytes && c.BytesPerSecond >= enough*best && (found.Depth == 0 || c.Depth < found.Depth) {
			found = c
		}
	}
	return found
}

func size(n int64) string {
	if n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
