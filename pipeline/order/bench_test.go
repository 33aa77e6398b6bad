package order

import (
	"fmt"
	"testing"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// benchEpoch returns an epoch of 10 million records in chunks of 128.
func benchEpoch(b *testing.B, shuffle spec.Shuffle, groups uint64) *Epoch {
	o := spec.Default().Order
	o.Shuffle, o.Groups = shuffle, groups
	if groups > 1 {
		o.Batch = 64
	}
	chunks := make([]uint64, 10_000_000/128)
	for i := range chunks {
		chunks[i] = 128
	}
	return newEpoch(b, o, 0, chunks)
}

func perRecord(b *testing.B, records int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
}

func BenchmarkNext(b *testing.B) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		for _, groups := range []uint64{1, 4} {
			b.Run(fmt.Sprintf("shuffle=%s/groups=%d", shuffle, groups), func(b *testing.B) {
				c := benchEpoch(b, shuffle, groups).Cursor(0)
				dst := make([]uint64, 4096)
				b.ReportAllocs()
				for b.Loop() {
					if c.Next(dst) < len(dst) {
						c.Seek(0)
					}
				}
				perRecord(b, len(dst))
			})
		}
	}
}

// BenchmarkFirstSeek seeks to the middle of an epoch in which nothing has been visited;
// BenchmarkRepeatedSeek seeks in one that has been visited.
func BenchmarkFirstSeek(b *testing.B) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull} {
		b.Run(fmt.Sprintf("shuffle=%s", shuffle), func(b *testing.B) {
			var first [64]uint64
			for b.Loop() {
				e := benchEpoch(b, shuffle, 1)
				e.Cursor(e.Len() / 2).Next(first[:])
			}
		})
	}
}

func BenchmarkRepeatedSeek(b *testing.B) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock} {
		b.Run(fmt.Sprintf("shuffle=%s", shuffle), func(b *testing.B) {
			var first [64]uint64
			e := benchEpoch(b, shuffle, 1)
			c := e.Cursor(e.Len())
			p := uint64(0)
			for b.Loop() {
				p = (p + 7_654_321) % e.Len()
				c.Seek(p)
				c.Next(first[:])
			}
		})
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, workers := range []uint64{1, 4, 64} {
		for _, done := range []string{"fresh", "resumed"} {
			b.Run(fmt.Sprintf("workers=%d/%s", workers, done), func(b *testing.B) {
				benchRecords(b, workers, done == "resumed")
			})
		}
	}
}

func benchRecords(b *testing.B, workers uint64, resumed bool) {
	e := benchEpoch(b, spec.ShuffleReservoir, 1)
	deal := spec.Assignment{Workers: workers, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	var done []Done
	if resumed { // one worker that is far behind keeps the walk from ever being plain
		done = []Done{{Batch: 1, Consumed: []uint64{2_000_000, 0}}}
	}
	v, err := NewView(e, done, deal)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]uint64, 64)
	k := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for w := range workers {
			v.Records(w, k, dst)
		}
		if k += 64; k+64 > v.Count(workers-1) {
			k = 0
		}
	}
	perRecord(b, 64*int(workers))
}

func BenchmarkSweep(b *testing.B) {
	v, err := NewView(benchEpoch(b, spec.ShuffleReservoir, 1), nil, spec.Default().Deal)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		v.Sweep(0, v.Dealt(), func(uint64, []uint64) bool { return true })
	}
	perRecord(b, int(v.Dealt()))
}

// oneShard is a shard with an entry point every 100 records.
type oneShard struct{ records uint64 }

func (s oneShard) Shards() int     { return 1 }
func (s oneShard) Shard(int) Shard { return Shard{Records: s.records, ID: ID("x")} }
func (s oneShard) Entries(_ int, word uint64) (set uint64) {
	if rest := word * 64 % 100; rest == 0 || rest > 36 {
		return 1 << ((100 - rest) % 100)
	}
	return 0
}

// BenchmarkSplit computes the records that a split selects, on one core.
func BenchmarkSplit(b *testing.B) {
	const records = 10_000_000
	for _, by := range []spec.SplitBy{spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit} {
		b.Run("by="+string(by), func(b *testing.B) {
			for b.Loop() {
				newPart(b, spec.Split{Part: part(b, "0..0.9"), By: by}, oneShard{records})
			}
			perRecord(b, records)
		})
	}
}

// BenchmarkNumbers turns ranks into record numbers, for 10⁸ records.
func BenchmarkNumbers(b *testing.B) {
	p := newPart(b, spec.Split{Part: part(b, "0..0.9"), By: spec.SplitByRecord}, oneShard{100_000_000})
	ranks := make([]uint64, 4096)
	for _, c := range []struct {
		name string
		rank func(i uint64) uint64
	}{
		{"one after the other", func(i uint64) uint64 { return i }},
		{"near each other", func(i uint64) uint64 { return i + mix(i)%16384 }},
		{"anywhere", func(i uint64) uint64 { return mix(i) % p.Len() }},
	} {
		b.Run(c.name, func(b *testing.B) {
			at := uint64(0)
			for b.Loop() {
				for i := range ranks {
					ranks[i] = c.rank(at % 80_000_000)
					at++
				}
				p.Numbers(ranks)
			}
			perRecord(b, len(ranks))
		})
	}
}

// BenchmarkOrderOf100M computes an epoch's whole order from scratch, for 10⁸ records and for a
// sample of them: which records the epoch has, its chunks, and one walk. The sample must not take
// longer.
func BenchmarkOrderOf100M(b *testing.B) {
	const records, chunk = 100_000_000, 128
	var all []uint64
	for at := uint64(0); at < records; at += chunk {
		all = append(all, at)
	}
	all = append(all, records)
	for _, of := range []uint64{1, 32} {
		b.Run(fmt.Sprintf("sample=1/%d", of), func(b *testing.B) {
			o := spec.Default().Order
			if of > 1 {
				o.Sample = spec.Subsample{Of: of}
			}
			dst := make([]uint64, 4096)
			for b.Loop() {
				part, err := NewPart(o, 1, oneShard{records}, inTurn)
				if err != nil {
					b.Fatal(err)
				}
				starts := all
				if part != nil {
					starts = part.Starts(all)
				}
				e, err := NewEpoch(o, 1, starts, part)
				if err != nil {
					b.Fatal(err)
				}
				c := e.Cursor(0)
				for n := len(dst); n == len(dst); {
					n = c.Next(dst)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/order")
		})
	}
}
