// Package quality measures how well an order mixes shards, and advises which settings would improve
// it. It is pure: it runs the real order on record numbers and never reads data.
//
//	order ──record numbers──► shard of each ──► histogram of each batch ──► χ²/df
//
// The measure is χ²/df of the histogram over shards of each batch of 256 records, averaged over an
// epoch. With S shards, where shard s has the share q(s) of all records and o(s) of the b records
// in a batch:
//
//	χ² = Σ (o(s) − b·q(s))² / (b·q(s)),  df = S − 1
//
// Independent sampling gives 1.0; a batch from a single shard gives about b. Permuted chunks of B
// records that pass through a reservoir of K give about 1 + B·b/(2K).
package quality

import (
	"slices"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// BatchRecords is b, the batch of the measure.
const BatchRecords = 256

// A shuffle above Poor deserves a warning; advice aims at Good. The defaults reach 1.8 on large
// shards.
const (
	Poor = 3
	Good = 2
)

// Estimate is a measured χ²/df.
type Estimate struct {
	// Value is the mean over Batches. It is 1 if there is nothing to measure: one shard, or less
	// than one batch of records.
	Value   float64 `json:"chi2_df"`
	Batches int     `json:"batches"`
	// Whole is set if all batches of the epoch were measured, not only a part.
	Whole bool `json:"whole_epoch"`
}

// meter accumulates batches.
type meter struct {
	weights []float64 // T / (b · records of the shard): 1 / expected count; 0 for none
	degrees int       // df
	starts  []uint64
	counts  []uint32
	touched []int
	sum     float64
	batches int
}

// newMeter returns a meter for shards and the part of their records that a split selects.
// shardStarts are the numbers of the shards' first records, ascending, followed by the number of
// all records. Shards without records are ignored.
func newMeter(shardStarts []uint64, part *order.Part) *meter {
	m := &meter{starts: slices.Compact(slices.Clone(shardStarts)), degrees: -1}
	shards := len(m.starts) - 1
	m.counts = make([]uint32, shards)
	m.weights = make([]float64, shards)
	total := float64(part.Count(0, m.starts[shards]))
	for i := range m.weights {
		if n := part.Count(m.starts[i], m.starts[i+1]); n > 0 {
			m.weights[i] = total / (BatchRecords * float64(n))
			m.degrees++
		}
	}
	return m
}

// add counts one batch of BatchRecords record numbers.
func (m *meter) add(records []uint64) {
	m.touched = m.touched[:0]
	for _, r := range records {
		s := m.shardOf(r)
		if m.counts[s] == 0 {
			m.touched = append(m.touched, s)
		}
		m.counts[s]++
	}
	chi := -float64(len(records)) // Σ(o−e)²/e = Σo²/e − b
	for _, s := range m.touched {
		chi += float64(m.counts[s]) * float64(m.counts[s]) * m.weights[s]
		m.counts[s] = 0
	}
	m.sum += chi / float64(m.degrees)
	m.batches++
}

// shardOf returns the index of a record's shard among those that have records.
func (m *meter) shardOf(record uint64) int {
	s, found := slices.BinarySearch(m.starts, record)
	if !found {
		s--
	}
	return s
}

func (m *meter) estimate(whole bool) Estimate {
	if m.batches == 0 {
		return Estimate{Value: 1, Whole: whole}
	}
	return Estimate{Value: m.sum / float64(m.batches), Batches: m.batches, Whole: whole}
}

// Source fills dst with the records from position k on and returns their number, which is below
// len(dst) only at the end. It must not be used concurrently.
type Source func(k uint64, dst []uint64) int

// Walk returns a Source of G.
func Walk(e *order.Epoch) Source {
	c := e.Cursor(0)
	at := uint64(0)
	return func(k uint64, dst []uint64) int {
		if k != at {
			c.Seek(k)
		}
		n := c.Next(dst)
		at = k + uint64(n)
		return n
	}
}

// measure measures at most limit of count records. If it can't measure all, it starts after warmUp
// records, provided that this leaves half of the limit: a reservoir mixes less at its start, when
// it holds only consecutive chunks, than over an epoch.
func measure(next Source, count, warmUp, limit uint64, shardStarts []uint64, part *order.Part) Estimate {
	m := newMeter(shardStarts, part)
	if m.degrees < 1 {
		return m.estimate(true)
	}
	whole := count <= limit
	from, to := uint64(0), count
	if !whole {
		to = limit
		if warmUp <= limit/2 {
			from = warmUp
		}
	}
	batch := make([]uint64, BatchRecords)
	for k := from; k+BatchRecords <= to; k += BatchRecords {
		if next(k, batch) < BatchRecords {
			break
		}
		m.add(batch)
	}
	return m.estimate(whole)
}

// OfEpoch measures G, or a part of it of at most limit records, at about 40 ns per record.
// shardStarts are the first records of the shards, followed by the number of all records.
func OfEpoch(e *order.Epoch, size, limit uint64, shardStarts []uint64) Estimate {
	return measure(Walk(e), e.Len(), 4*size, limit, shardStarts, e.Part())
}

// OfWorker measures the stream of worker w of a view. It steps over the records of all workers, and
// limit counts those steps.
func OfWorker(v *order.View, w, size, limit uint64, shardStarts []uint64) Estimate {
	workers := v.Deal().Workers
	next := func(k uint64, dst []uint64) int { return v.Records(w, k, dst) }
	return measure(next, v.Own(w), 4*size/workers, max(1, limit/workers), shardStarts, v.Epoch().Part())
}

// Advice is a change of one setting, and the measure that it would reach.
type Advice struct {
	Flag  string  `json:"flag"`
	Value string  `json:"value"`
	Chi   float64 `json:"chi2_df"`
}

// Subject is what an order depends on in a dataset.
type Subject struct {
	// ShardStarts are the first records of the shards, ascending, followed by the number
	// of all records.
	ShardStarts []uint64
	// Part is the set of records that a split selects, or nil without a split.
	Part *order.Part
	// ChunkStarts returns the argument starts of order.NewEpoch.
	ChunkStarts func(chunkBytes, chunkRecords uint64) []uint64
}

// adviceLimit bounds the records that are measured for one candidate.
const adviceLimit = 1 << 18

// Advise searches for settings that mix better than o, by running them. For each flag it returns
// the smallest change that reaches good. If none does, it returns the best change, and nothing if
// none improves the mix.
func Advise(s Subject, o spec.Order, epoch uint64, good float64) ([]Advice, error) {
	if len(s.ShardStarts) < 3 {
		return nil, nil
	}
	total := s.Part.Count(0, s.ShardStarts[len(s.ShardStarts)-1])
	s.ChunkStarts = rememberLast(s.ChunkStarts)
	now, err := try(s, o, epoch)
	if err != nil {
		return nil, err
	}
	var advice []Advice
	if o.Shuffle == spec.ShuffleNone {
		o.Shuffle = spec.ShuffleReservoir
		with, err := try(s, o, epoch)
		return []Advice{{"--shuffle", string(spec.ShuffleReservoir), with}}, err
	}
	for _, ladder := range ladders(o, total) {
		best := Advice{Chi: now * 0.9} // smaller gains are ignored
		for _, step := range ladder {
			chi, err := try(s, step.order, epoch)
			if err != nil {
				return nil, err
			}
			if chi < best.Chi {
				best = Advice{step.flag, step.value, chi}
			}
			if chi <= good {
				break
			}
		}
		if best.Flag != "" {
			advice = append(advice, best)
		}
	}
	return advice, nil
}

func try(s Subject, o spec.Order, epoch uint64) (float64, error) {
	e, err := order.NewEpoch(o, epoch, s.ChunkStarts(o.ChunkBytes, o.ChunkRecords), s.Part)
	if err != nil {
		return 0, err
	}
	return OfEpoch(e, o.SizeRecords, adviceLimit, s.ShardStarts).Value, nil
}

// rememberLast caches the last result: most candidates have the same chunks, and computing them
// takes a pass over all records.
func rememberLast(f func(chunkBytes, chunkRecords uint64) []uint64) func(chunkBytes, chunkRecords uint64) []uint64 {
	var bytes, records uint64
	var starts []uint64
	return func(b, r uint64) []uint64 {
		if starts == nil || b != bytes || r != records {
			bytes, records, starts = b, r, f(b, r)
		}
		return starts
	}
}

// step is one candidate of Advise.
type step struct {
	flag, value string
	order       spec.Order
}

// ladders returns the candidates, flag by flag, the smallest change first: a larger buffer
// (memory), smaller chunks (more, smaller reads; no help in compressed shards without entry
// points), more lanes (more positions that are read at a time), and the full permutation (each
// record is a separate read).
func ladders(o spec.Order, total uint64) [][]step {
	if o.Shuffle == spec.ShuffleFull {
		return nil
	}
	var size, chunk, lanes []step
	for n := o.SizeRecords * 2; n < 2*total && n != 0 && len(size) < 8; n *= 2 {
		p := o
		p.SizeRecords = min(n, total)
		size = append(size, step{"--shuffle-size", strconv.FormatUint(p.SizeRecords, 10), p})
	}
	for n := o.ChunkRecords / 2; n >= 8 && len(chunk) < 4; n /= 2 {
		p := o
		p.ChunkRecords = n
		chunk = append(chunk, step{"--chunk-records", strconv.FormatUint(n, 10), p})
	}
	// With only a few records in each lane, a lane no longer shuffles.
	for n := o.Lanes * 2; n <= min(1024, o.SizeRecords/16) && len(lanes) < 4; n *= 2 {
		p := o
		p.Lanes = n
		lanes = append(lanes, step{"--lanes", strconv.FormatUint(n, 10), p})
	}
	full := o
	full.Shuffle = spec.ShuffleFull
	return [][]step{size, chunk, lanes, {{"--shuffle", string(spec.ShuffleFull), full}}}
}
