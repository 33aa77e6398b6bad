package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// drawnOrder is a dataset with some order: shuffled or not, in groups, a sample, or a mixture.
type drawnOrder struct {
	subject Subject // Records is that of epoch 0
	epoch   func(number uint64) *order.Epoch
}

// oneShard is a shard of that many records.
type oneShard uint64

func (s oneShard) Shards() int              { return 1 }
func (s oneShard) Shard(int) order.Shard    { return order.Shard{Records: uint64(s), Anywhere: true} }
func (oneShard) Entries(int, uint64) uint64 { return 0 }

func drawOrder(t *rapid.T) (d drawnOrder) {
	s := subject()
	o := &s.Order
	o.Seed = rapid.Uint64().Draw(t, "seed")
	o.Shuffle = rapid.SampledFrom([]spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone}).Draw(t, "shuffle")
	o.SizeRecords, o.Lanes = rapid.Uint64Range(1, 60).Draw(t, "size"), rapid.Uint64Range(1, 4).Draw(t, "lanes")
	records := rapid.Uint64Range(1, 200).Draw(t, "records")
	kind := rapid.SampledFrom([]string{"plain", "groups", "sample", "mixture"}).Draw(t, "kind")
	switch kind {
	case "groups":
		o.Groups, o.Batch = o.Lanes, 1
		if o.Groups > 1 {
			o.Batch = rapid.Uint64Range(1, 20).Draw(t, "order's batch")
		}
	case "sample":
		o.Sample = spec.Subsample{Of: rapid.Uint64Range(2, 4).Draw(t, "of"), Seed: o.Seed}
	}
	d.epoch = func(number uint64) *order.Epoch {
		starts, part := []uint64{0, records}, (*order.Part)(nil)
		if kind == "sample" {
			var err error
			part, err = order.NewPart(*o, number, oneShard(records), func(work []func()) {
				for _, f := range work {
					f()
				}
			})
			require.NoError(t, err)
			starts = part.Starts(starts)
		}
		e, err := order.NewEpoch(*o, number, starts, part)
		require.NoError(t, err)
		return e
	}
	if kind == "mixture" {
		shares, err := order.NewShares(o.Seed, []uint64{2, 1})
		require.NoError(t, err)
		sources := []order.Source{{Starts: []uint64{0, records}}, {First: records, Starts: []uint64{0, 7}}}
		o.Length = rapid.Uint64Range(1, 200).Draw(t, "length")
		m, err := order.NewMixture(*o, shares, sources, o.Length)
		require.NoError(t, err)
		d.epoch = func(number uint64) *order.Epoch {
			e, err := m.Epoch(number)
			require.NoError(t, err)
			return e
		}
	}
	d.subject = s
	return d
}

// files returns the records of all files to which the rest of an epoch is dealt, each without its
// padding.
func (d drawnOrder) files(t *rapid.T, p Position, deal spec.Assignment) (files [][]uint64, steps []uint64) {
	v, err := order.NewView(d.epoch(p.Epoch), p.Done, deal)
	require.NoError(t, err)
	for w := range deal.Workers {
		records := make([]uint64, v.Count(w))
		require.Equal(t, len(records), v.Records(w, 0, records))
		files = append(files, records[:v.Own(w)])
		steps = append(steps, (v.Count(w)+deal.Batch-1)/deal.Batch)
	}
	return files, steps
}

// rest returns all remaining records.
func (d drawnOrder) rest(t *rapid.T, p Position) []uint64 {
	files, _ := d.files(t, p, spec.Assignment{Workers: 1, Batch: max(1, d.subject.Order.Batch), Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
	return files[0]
}

// restored writes the document of a position, reads it back, and returns the position that results.
func (d drawnOrder) restored(t *rapid.T, p Position, deal spec.Assignment) Position {
	s := d.subject
	s.Records, s.Deal = uint64(len(d.rest(t, Position{Epoch: p.Epoch}))), deal
	back, err := Resolve(Live(s, p, deal, make([]uint64, deal.Workers)).Marshal(s.Records), s)
	require.NoError(t, err)
	require.Equal(t, p, back)
	return back
}

func drawDeal(t *rapid.T, o spec.Order) spec.Assignment {
	d := spec.Assignment{
		Workers: rapid.Uint64Range(1, 5).Draw(t, "workers"),
		Batch:   rapid.Uint64Range(1, 20).Draw(t, "batch"),
		Dealing: rapid.SampledFrom([]spec.Dealing{spec.DealInterleaved, spec.DealContiguous}).Draw(t, "deal"),
		Tail:    rapid.SampledFrom([]spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad}).Draw(t, "tail"),
	}
	if o.Groups > 1 {
		if d.Batch = o.Batch; d.Dealing == spec.DealContiguous {
			d.Tail = spec.TailKeep
		}
	}
	return d
}

// The document of a position continues with the next record, and that of all records with the next
// epoch, if there is one.
func TestPositionContinuesWithNextRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawOrder(t)
		number := rapid.Uint64Range(0, 3).Draw(t, "epoch")
		whole := d.rest(t, Position{Epoch: number})
		s := d.subject
		s.Records, s.Deal = uint64(len(whole)), drawDeal(t, d.subject.Order)
		taken := rapid.Uint64Range(0, s.Records).Draw(t, "taken")
		if rapid.Bool().Draw(t, "all") {
			taken = s.Records
		}
		nextHasBegun := rapid.Bool().Draw(t, "next has begun")
		p := d.restored(t, s.Position(number, taken, nextHasBegun), s.Deal)
		want := whole[taken:]
		if taken == s.Records && taken > 0 && nextHasBegun {
			want = d.rest(t, Position{Epoch: number + 1})
			require.Equal(t, Position{Epoch: number + 1}, p)
		}
		require.Equal(t, want, d.rest(t, p))

		back, err := Resolve(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, number, taken), s)
		require.NoError(t, err)
		require.Equal(t, s.Position(number, taken, false), back, "the short form")
	})
}

func TestLastEpochHasNoSuccessor(t *testing.T) {
	s := subject()
	require.Equal(t, Position{Epoch: math.MaxUint64, Done: []order.Done{interleaved(1, records)}}, s.Position(math.MaxUint64, records, true))
}

// A training loop as on the Python page: each rank reads through a loader with several workers.
// Worker w of rank r reads file w·ranks + r; the loader takes a batch from each of its workers in
// turn, and skips files that have ended. Rank 0 counts steps × batch × ranks. After each step that
// number stands for exactly the records that all ranks have trained on.
func TestLoopCountMatchesRecordsTrainedOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawOrder(t)
		whole := d.rest(t, Position{})
		s := d.subject
		s.Records, s.Deal = uint64(len(whole)), drawDeal(t, d.subject.Order)
		first := rapid.Uint64Range(0, s.Records).Draw(t, "resumed at")
		ranks := rapid.Uint64Range(1, 6).Draw(t, "ranks")
		deal := s.Deal
		deal.Workers = ranks * rapid.Uint64Range(1, 4).Draw(t, "workers of a loader")
		files, batches := d.files(t, s.Position(0, first, false), deal)

		// The order in which each rank reads the batches of its files.
		type batch struct{ file, number uint64 }
		read, most := make([][]batch, ranks), uint64(0)
		for file := range deal.Workers {
			most = max(most, batches[file])
		}
		for number := range most {
			for file := range deal.Workers {
				if number < batches[file] {
					read[file%ranks] = append(read[file%ranks], batch{file, number})
				}
			}
		}
		require.True(t, slices.IsSortedFunc(read, func(a, b []batch) int { return len(b) - len(a) }), "rank 0 has most")
		if deal.Tail != spec.TailKeep {
			require.Equal(t, len(read[0]), len(read[ranks-1]))
		}

		trained := append([]uint64{}, whole[:first]...)
		for step := range read[0] {
			for rank := range ranks {
				if step < len(read[rank]) {
					b, own := read[rank][step], uint64(len(files[read[rank][step].file]))
					trained = append(trained, files[b.file][min(own, b.number*deal.Batch):min(own, (b.number+1)*deal.Batch)]...)
				}
			}
			if deal.Dealing == spec.DealContiguous && step < len(read[0])-1 {
				continue // each file is a separate range: a count means nothing before the end
			}
			taken, possible := s.Samples(first + uint64(step+1)*deal.Batch*ranks)
			if deal.Dealing == spec.DealContiguous && deal.Tail == spec.TailDrop {
				continue // files end in the middle of a batch
			}
			require.True(t, possible, "step %d", step)
			require.ElementsMatch(t, whole[:taken], trained, "step %d", step)
			if step == len(read[0])-1 && deal.Tail != spec.TailDrop {
				require.Equal(t, s.Records, taken, "the end")
			}
		}
	})
}

func TestCountThatNoLoopCanReachIsRefused(t *testing.T) {
	for tail, most := range map[spec.Tail]uint64{spec.TailDrop: 0, spec.TailKeep: 64*spec.MaxWorkers - 1, spec.TailPad: 64*spec.MaxWorkers - 1} {
		s := subject()
		s.Deal = spec.Assignment{Workers: 1, Batch: 64, Tail: tail}
		taken, possible := s.Samples(records + most)
		require.True(t, possible, tail)
		require.EqualValues(t, records, taken)
		for _, beyond := range []uint64{records + most + 1, math.MaxUint64} {
			_, possible = s.Samples(beyond)
			require.False(t, possible, "%s: %d", tail, beyond)
		}
	}
}

func TestOrderEndsWithSampleIfSet(t *testing.T) {
	s := subject()
	s.Order.Sample = spec.Subsample{Of: 39, Seed: 7}
	written := string(State{Dataset: s.Dataset, Order: s.Order, Done: []order.Done{interleaved(1, 9)}}.Marshal(records))
	require.Equal(t, strings.Replace(fullDocument(`{"batch": 1, "consumed": [      9]}`),
		`"chunk_records": 128}`, `"chunk_records": 128, "sample": {"of": 39, "seed": 7}}`, 1), written)
	read, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, s.Order, read.Order)
	_, err = Resolve([]byte(written), s)
	require.NoError(t, err)
	for _, other := range []string{`"of": 38, "seed": 7`, `"of": 39, "seed": 8`} {
		_, err = Resolve([]byte(strings.Replace(written, `"of": 39, "seed": 7`, other, 1)), s)
		require.ErrorContains(t, err, `order.sample is {`+other+`} in the checkpoint and {"of": 39, "seed": 7} here`)
	}
	_, err = Resolve([]byte(written), subject())
	require.ErrorContains(t, err, `in the checkpoint and all records here`)
	_, err = Resolve([]byte(strings.Replace(written, `"of": 39`, `"of": 1`, 1)), subject())
	require.NoError(t, err, "a sample of all records is none")
	for bad, why := range map[string]string{
		`{}`: "order.sample lacks of, seed", `{"of": 0, "seed": 1}`: "order.sample.of (0) must be", `{"of": 65537, "seed": 1}`: "order.sample.of (65537) must be",
		`{"of": 2}`: "order.sample lacks seed", `{"of": 2, "seed": 1, "phase": 0}`: "phase", `3`: "order.sample: expected {",
	} {
		_, err = Resolve([]byte(strings.Replace(written, `{"of": 39, "seed": 7}`, bad, 1)), s)
		require.ErrorContains(t, err, why, bad)
	}
	for i := range written {
		require.NoError(t, Possible([]byte(written[:i])))
	}
}

// If epochs differ, a document is checked against its own epoch.
func TestDocumentsAreCheckedAgainstTheirOwnEpoch(t *testing.T) {
	s := subject()
	s.Dataset, s.Records = "", 0
	gone := errors.New("epoch 2 does not exist: this run is at 1")
	s.At = func(epoch uint64) (string, uint64, error) {
		if epoch > 1 {
			return "", 0, gone
		}
		return strings.Repeat("ab", 32), 100 + epoch, nil
	}
	for epoch, most := range []int{100, 101} {
		p, err := Resolve(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, epoch, most), s)
		require.NoError(t, err)
		require.Equal(t, uint64(epoch), p.Epoch)
		_, err = Resolve(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, epoch, most+1), s)
		require.ErrorContains(t, err, fmt.Sprintf("must be at most %d", most))
	}
	_, err := Resolve([]byte(`{"epoch": 2}`), s)
	require.ErrorIs(t, err, gone)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	_, err = Resolve([]byte(fullDocument(`{"batch": 1, "consumed": [101]}`)), s)
	require.ErrorContains(t, err, "101")
}
