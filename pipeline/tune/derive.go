package tune

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

const (
	// flightShare is the share of the best throughput that is good enough: more in flight costs
	// memory and makes the first reads wait.
	flightShare = 0.95
	// readShare is the same for sizes of reads: on a machine that does other things as well, a few
	// rounds can't distinguish cells that are a tenth apart.
	readShare = 0.90
	// largeBytes is the smallest size that ranges are split to. Smaller reads are never better on
	// any storage: each costs CPU, and they don't bypass the page cache on their own.
	largeBytes = 128 << 10
	// maxGapBytes is the largest gap worth reading: that of a disk that seeks.
	maxGapBytes = 4 << 20
)

// Derived is the result of Derive.
type Derived struct {
	Depth         int
	InFlightBytes int64
	ReadBytes     int64
	GapBytes      int64
	// RequestSeconds and ByteSeconds model the storage's time for a read of n bytes: RequestSeconds
	// + n·ByteSeconds, with as many reads in flight as the other values specify. CopySeconds is the
	// time to copy a byte; 0 if it was not measured. The gap is RequestSeconds / (ByteSeconds +
	// CopySeconds).
	RequestSeconds, ByteSeconds, CopySeconds float64
	Costs                                    []Cost   // the costs that the first two were fitted to, by size
	Reasons                                  []string // one for each value, for users
}

// Cost is how much of the storage's time a read of some size takes with several in flight: its
// share of the time that they take together.
type Cost struct {
	ReadBytes     int64   `json:"read_bytes"`
	Depth         int     `json:"depth"`
	Seconds       float64 `json:"seconds"`        // measured
	FittedSeconds float64 `json:"fitted_seconds"` // RequestSeconds + ReadBytes·ByteSeconds
}

// Derive determines which reads a storage is fast at, from measurements, some of which may be
// missing. It is pure and independent of scale: a storage that is faster in everything by the same
// factor gets the same profile. Reads of a single size can't determine the gap; then it is that of
// otherwise.
//
// Small reads determine how many should be in flight, large ones how many bytes. Small reads are
// fastest with many in flight. Large ones are often fastest with few, because each waiting read
// takes room in caches.
//
// copyRate is the speed of copying memory in bytes per second; 0 if it was not measured.
func Derive(cells []filesystem.Measurement, copyRate float64, otherwise storage.Profile) (Derived, error) {
	cells = slices.DeleteFunc(slices.Clone(cells), func(c filesystem.Measurement) bool {
		return c.ReadBytes <= 0 || c.Depth <= 0 || !(c.BytesPerSecond > 0) || math.IsInf(c.BytesPerSecond, 0)
	})
	if len(cells) == 0 {
		return Derived{}, errors.New("nothing was measured")
	}
	small, large := split(cells)
	d := Derived{GapBytes: otherwise.GapBytes}
	if copyRate > 0 {
		d.CopySeconds = 1 / copyRate
	}
	d.chooseDepth(small)
	d.chooseFlight(large)
	d.chooseRead(large)
	d.chooseGap(cells, otherwise.AlignBytes)
	return d, nil
}

// split separates the cells of small and large reads. If there are none of one kind, it returns all
// cells for both.
func split(cells []filesystem.Measurement) (small, large []filesystem.Measurement) {
	for _, c := range cells {
		if c.ReadBytes < largeBytes {
			small = append(small, c)
		} else {
			large = append(large, c)
		}
	}
	if len(small) == 0 || len(large) == 0 {
		return cells, cells
	}
	return small, large
}

// chooseDepth chooses the smallest depth at which reads of all small sizes, in the geometric mean,
// come near the best that they reach at any depth.
func (d *Derived) chooseDepth(cells []filesystem.Measurement) {
	best := map[int64]float64{}
	for _, c := range cells {
		best[c.ReadBytes] = max(best[c.ReadBytes], c.BytesPerSecond)
	}
	sum, count := map[int]float64{}, map[int]int{}
	for _, c := range cells {
		sum[c.Depth] += math.Log(c.BytesPerSecond / best[c.ReadBytes])
		count[c.Depth]++
	}
	var scores []scored[int]
	for depth := range sum {
		scores = append(scores, scored[int]{depth, math.Exp(sum[depth] / float64(count[depth]))})
	}
	chosen, before := enough(scores, flightShare)
	d.Depth = chosen.at
	why := fmt.Sprintf("%d at a time: so many small reads get %.0f %% of the best", chosen.at, 100*chosen.score)
	if before != nil {
		why += fmt.Sprintf(", %d get %.0f %%", before.at, 100*before.score)
	}
	d.because(why)
}

// chooseFlight chooses the smallest number of bytes in flight at which large reads of some size
// come near the best.
func (d *Derived) chooseFlight(cells []filesystem.Measurement) {
	best := map[int64]float64{}
	for _, c := range cells {
		flight := c.ReadBytes * int64(c.Depth)
		best[flight] = max(best[flight], c.BytesPerSecond)
	}
	var scores []scored[int64]
	for flight, v := range best {
		scores = append(scores, scored[int64]{flight, v})
	}
	chosen, before := enough(scores, flightShare)
	d.InFlightBytes = chosen.at
	why := fmt.Sprintf("%s at a time: large reads then get up to %s/s", size(chosen.at), rate(chosen.score))
	if before != nil {
		why += fmt.Sprintf(", with %s %s/s", size(before.at), rate(before.score))
	}
	d.because(why)
}

// chooseRead chooses the smallest size of reads that, with that many bytes in flight, comes near
// the best.
func (d *Derived) chooseRead(cells []filesystem.Measurement) {
	var scores []scored[int64]
	for _, c := range cells {
		if c.ReadBytes*int64(c.Depth) == d.InFlightBytes {
			scores = append(scores, scored[int64]{c.ReadBytes, c.BytesPerSecond})
		}
	}
	chosen, before := enough(scores, readShare)
	d.ReadBytes = chosen.at
	why := fmt.Sprintf("reads of up to %s: they then get %s/s", size(chosen.at), rate(chosen.score))
	if before != nil {
		why += fmt.Sprintf(", those of %s %s/s", size(before.at), rate(before.score))
	}
	d.because(why)
}

// chooseGap fits seconds = request + bytes·byte to reads of all sizes, with the chosen number in
// flight and equal weights for all sizes (least squares of relative errors). It is better to read
// two ranges together than separately if the bytes between them cost less than a request:
//
//	gap·(byte + copy) < request
//
// Bytes that are dropped are copied, too: records begin at any offset, so reads that bypass the
// page cache can't go directly to their destination. They are copied out of the engine's aligned
// blocks, including the gaps (package uring). The gap does not depend on the size of records:
// whether two ranges are better read together depends only on what is between them.
//
// Measured on a virtual disk for which the gap is 27 KiB: gathering 12 KiB records took the same
// time with gaps of 8 and 32 KiB and a sixth more with 128. Records of 1.2 KiB took a tenth more
// with 8 KiB than with 4, and a third more with 32: then a block of memory holds few of them, and
// each is copied once more, to its destination. A gap that is derived from the storage alone does
// not include that.
func (d *Derived) chooseGap(cells []filesystem.Measurement, align int64) {
	at := d.operating(cells)
	if len(at) < 2 {
		d.because(fmt.Sprintf("gaps of up to %s: one size of reads does not tell what a request costs, so it is the default", size(d.GapBytes)))
		return
	}
	// Minimizes the sum of (request·w + byte·w·n − 1)², w = 1/seconds.
	var aa, ab, bb, a, b float64
	for _, c := range at {
		v := c.BytesPerSecond
		w := v / float64(c.ReadBytes)
		aa, ab, bb, a, b = aa+w*w, ab+w*v, bb+v*v, a+w, b+v
	}
	det := aa*bb - ab*ab
	d.RequestSeconds, d.ByteSeconds = (a*bb-b*ab)/det, (b*aa-a*ab)/det
	switch {
	case !(d.RequestSeconds > 0):
		d.RequestSeconds, d.ByteSeconds, d.GapBytes = 0, b/bb, align
		d.because(fmt.Sprintf("gaps of up to %s: requests cost nothing that shows, but blocks are read whole", size(d.GapBytes)))
	case !(d.ByteSeconds > 0):
		d.RequestSeconds, d.ByteSeconds, d.GapBytes = a/aa, 0, maxGapBytes
		d.because(fmt.Sprintf("gaps of up to %s: reads of all sizes take the same time, so that requests are what costs", size(d.GapBytes)))
	default:
		worth := d.RequestSeconds / (d.ByteSeconds + d.CopySeconds)
		d.GapBytes = int64(min(worth, maxGapBytes))
		d.GapBytes = max(d.GapBytes/align*align, align)
		d.because(fmt.Sprintf("gaps of up to %s: a request costs %.3g µs of the storage's time; a byte %.3g ns (%s/s), and %.3g ns to copy: %s cost as much as a request",
			size(d.GapBytes), d.RequestSeconds*1e6, d.ByteSeconds*1e9, rate(1/d.ByteSeconds), d.CopySeconds*1e9, size(int64(worth))))
	}
	for _, c := range at {
		n := float64(c.ReadBytes)
		d.Costs = append(d.Costs, Cost{c.ReadBytes, c.Depth, n / c.BytesPerSecond, d.RequestSeconds + n*d.ByteSeconds})
	}
}

// operating returns one cell for each size of reads, by size: the one with the chosen number in
// flight, or the next lower number that was measured, or the lowest.
func (d *Derived) operating(cells []filesystem.Measurement) []filesystem.Measurement {
	at := map[int64]filesystem.Measurement{}
	for _, c := range cells {
		fits := func(c filesystem.Measurement) bool {
			return c.Depth <= d.Depth && c.ReadBytes*int64(c.Depth) <= d.InFlightBytes
		}
		old, any := at[c.ReadBytes]
		if !any || fits(c) && (!fits(old) || c.Depth > old.Depth) || !fits(c) && !fits(old) && c.Depth < old.Depth {
			at[c.ReadBytes] = c
		}
	}
	list := slices.Collect(maps.Values(at))
	sort.Slice(list, func(i, j int) bool { return list[i].ReadBytes < list[j].ReadBytes })
	return list
}

func (d *Derived) because(why string) { d.Reasons = append(d.Reasons, why) }

// scored is a candidate value and its score.
type scored[T int | int64] struct {
	at    T
	score float64
}

// enough returns the smallest value whose score is at least a share of the best, and the value
// before it, or nil.
func enough[T int | int64](values []scored[T], share float64) (chosen scored[T], before *scored[T]) {
	sort.Slice(values, func(i, j int) bool { return values[i].at < values[j].at })
	best := slices.MaxFunc(values, func(a, b scored[T]) int {
		switch {
		case a.score < b.score:
			return -1
		case a.score > b.score:
			return 1
		}
		return 0
	}).score
	for i, v := range values {
		if v.score >= share*best {
			return v, before
		}
		before = &values[i]
	}
	panic("the best value is not among the values")
}

func size(n int64) string   { return humanize.IBytes(uint64(max(n, 0))) }
func rate(v float64) string { return humanize.IBytes(uint64(max(v, 0))) }
