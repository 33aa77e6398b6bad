package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// scattered returns records of one size, drawn from a few objects as a shuffle window over chunks
// of 128 records would.
func scattered(records int, size int64) Request {
	const objectBytes = 64 << 30
	rng := rand.New(rand.NewPCG(1, 2))
	r := Request{ObjectBytes: []int64{objectBytes, objectBytes, objectBytes, objectBytes}}
	chunks := rng.Perm(int(objectBytes / size / 128))[:records/16]
	for range records {
		at := (int64(chunks[rng.IntN(len(chunks))])*128 + rng.Int64N(128)) * size
		r.Want = append(r.Want, Range{Object: rng.IntN(4), OffsetBytes: at, SizeBytes: size})
	}
	return r
}

func TestPlanningAllocatesNothing(t *testing.T) {
	p := newPlanner(t, DefaultConfig())
	r := scattered(2000, 1200)
	r.Have = r.Want[:200]
	var g Progress
	var vectors []Vector
	var copies []Copy
	var done []int
	run := func() {
		plan, err := p.Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		done = g.Start(plan, done[:0])
		for i := range plan.Reads {
			vectors = plan.Vectors(i, vectors[:0])
			copies = plan.Copies(i, vectors, copies[:0])
			done = g.Done(i, done)
		}
		if len(done) != len(r.Want) {
			t.Fatalf("%d of %d ranges are complete", len(done), len(r.Want))
		}
	}
	require.Zero(t, testing.AllocsPerRun(5, run))
}

func BenchmarkPlan(b *testing.B) {
	for _, records := range []int{64, 4096, 32768} {
		for _, size := range []int64{1200, 12 << 10, 200 << 10} {
			b.Run(fmt.Sprintf("records=%d/size=%d", records, size), func(b *testing.B) {
				r := scattered(records, size)
				p := newPlanner(b, DefaultConfig())
				b.ReportAllocs()
				var plan *Plan
				for b.Loop() {
					var err error
					if plan, err = p.Plan(r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
				b.ReportMetric(float64(plan.Totals.Reads)/float64(records), "reads/record")
				b.ReportMetric(plan.Totals.Amplification(), "amplification")
			})
		}
	}
}
