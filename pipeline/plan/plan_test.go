package plan

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden file anew")

func newPlanner(t testing.TB, c Config) *Planner {
	p, err := New(c)
	require.NoError(t, err)
	return p
}

// small has sizes that can be drawn in the golden file.
var small = Config{MergeGapBytes: 4, MaxReadBytes: 16, AlignBytes: 1}

func TestPlansOfReadableCases(t *testing.T) {
	one := []int64{100}
	with := func(change func(*Config)) Config {
		c := small
		change(&c)
		return c
	}
	var b strings.Builder
	for _, c := range []struct {
		name    string
		config  Config
		request Request
	}{
		{"nothing wanted", small, Request{ObjectBytes: one}},
		{"an empty range is complete at once", small, Request{one, []Range{{0, 100, 0}}, nil}},
		{"near ranges come with one read, far ones do not", small, Request{one, []Range{{0, 30, 4}, {0, 0, 4}, {0, 8, 4}, {0, 17, 3}}, nil}},
		{"a read ends at a range's end where the next does not fit", small, Request{one, []Range{{0, 0, 7}, {0, 7, 7}, {0, 14, 7}, {0, 21, 7}}, nil}},
		{"equal and overlapping ranges are read once", small, Request{one, []Range{{0, 10, 6}, {0, 10, 6}, {0, 14, 4}, {0, 12, 1}}, nil}},
		{"a large range is cut evenly", small, Request{one, []Range{{0, 3, 40}, {0, 44, 2}}, nil}},
		{"cuts are aligned", with(func(c *Config) { c.AlignBytes = 8 }), Request{one, []Range{{0, 3, 40}}, nil}},
		{"what is there is left out", small, Request{one, []Range{{0, 0, 10}, {0, 20, 10}, {0, 40, 20}}, []Range{{0, 5, 12}, {0, 44, 3}, {0, 50, 5}, {0, 16, 14}}}},
		{"what is there is read all the same as a gap, and not waited for", small, Request{one, []Range{{0, 0, 4}, {0, 4, 4}, {0, 8, 4}}, []Range{{0, 4, 4}}}},
		{"offsets from the end", small, Request{[]int64{100, 40}, []Range{{1, -8, 8}, {0, -4, 2}, {1, 30, 4}}, nil}},
		{"many objects, in order", small, Request{[]int64{50, 50, 50}, []Range{{2, 0, 3}, {0, 40, 10}, {1, 0, 3}, {0, 0, 3}}, nil}},
		{"no more vectors than allowed", with(func(c *Config) { c.MaxVectors = 4 }), Request{one, []Range{{0, 0, 1}, {0, 2, 1}, {0, 4, 1}, {0, 6, 1}, {0, 7, 1}}, nil}},
		{"without a gap only what touches is merged", with(func(c *Config) { c.MergeGapBytes = 0 }), Request{one, []Range{{0, 0, 4}, {0, 4, 4}, {0, 9, 4}}, nil}},
	} {
		plan, err := newPlanner(t, c.config).Plan(c.request)
		require.NoError(t, err, c.name)
		describe(&b, c.name, c.request, plan)
	}
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile("testdata/plans.txt", []byte(b.String()), 0o644))
	}
	golden, err := os.ReadFile("testdata/plans.txt")
	require.NoError(t, err, "run go test ./pipeline/plan -update")
	require.Equal(t, string(golden), b.String())
}

// describe formats a plan for people.
func describe(b *strings.Builder, name string, r Request, p *Plan) {
	fmt.Fprintf(b, "# %s\n", name)
	for i, w := range r.Want {
		fmt.Fprintf(b, "want %d: object %d: %d bytes from %d on\n", i, w.Object, w.SizeBytes, w.OffsetBytes)
	}
	for _, h := range r.Have {
		fmt.Fprintf(b, "have:   object %d: %d bytes from %d on\n", h.Object, h.SizeBytes, h.OffsetBytes)
	}
	var g Progress
	if at := g.Start(p, nil); len(at) > 0 {
		fmt.Fprintf(b, "complete without a read: %v\n", at)
	}
	for i, read := range p.Reads {
		fmt.Fprintf(b, "read %d: object %d [%d, %d)", i, read.Object, read.OffsetBytes, read.OffsetBytes+read.SizeBytes)
		vectors := p.Vectors(i, nil)
		for _, v := range vectors {
			if v.Want < 0 {
				fmt.Fprintf(b, "  %d to nowhere", v.SizeBytes)
			} else {
				fmt.Fprintf(b, "  %d to %d+%d", v.SizeBytes, v.Want, v.WantOffset)
			}
		}
		for _, c := range p.Copies(i, vectors, nil) {
			fmt.Fprintf(b, "  copy %d from %d+%d to %d+%d", c.SizeBytes, c.From, c.FromOffset, c.To, c.ToOffset)
		}
		if done := g.Done(i, nil); len(done) > 0 {
			fmt.Fprintf(b, "  completes %v", done)
		}
		b.WriteByte('\n')
	}
	t := p.Totals
	fmt.Fprintf(b, "total: %d bytes wanted, %d cached, %d useful; %d reads of %d bytes, %d thrown away\n\n",
		t.WantedBytes, t.CachedBytes, t.UsefulBytes, t.Reads, t.ReadBytes, t.GapBytes)
}

func TestRangesOutsideTheirObjectAreRefused(t *testing.T) {
	p := newPlanner(t, small)
	for _, r := range []Range{
		{-1, 0, 1}, {2, 0, 1}, {0, 0, 101}, {0, 100, 1}, {0, -101, 1}, {0, -4, 5}, {0, 5, -1}, {1, 0, 1},
		{0, 1 << 62, 1 << 62}, {0, -1 << 63, 1}, {0, 1, 1<<63 - 1},
	} {
		sizes := []int64{100, 0}
		_, err := p.Plan(Request{sizes, []Range{{0, 0, 1}, r}, nil})
		require.ErrorIs(t, err, ErrRange, "%v", r)
		require.ErrorContains(t, err, "wanted range 1")
		_, err = p.Plan(Request{sizes, nil, []Range{r}})
		require.ErrorIs(t, err, ErrRange, "%v", r)
		require.ErrorContains(t, err, "range 0 that is there")
	}
	plan, err := p.Plan(Request{[]int64{100}, []Range{{0, 99, 1}}, nil})
	require.NoError(t, err, "a refused request leaves nothing behind")
	require.Len(t, plan.Reads, 1)
}

func TestValidateReportsAllProblems(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	_, err := New(Config{MergeGapBytes: -1, MaxVectors: -2})
	require.ErrorContains(t, err, "merge_gap (-1)")
	require.ErrorContains(t, err, "max_read (0)")
	require.ErrorContains(t, err, "align (0)")
	require.ErrorContains(t, err, "max_vectors (-2)")
	require.ErrorContains(t, Config{MaxReadBytes: 10, AlignBytes: 4}.Validate(), "max_read (10) must be a multiple of align (4)")
}

func TestAmplification(t *testing.T) {
	require.Zero(t, Totals{ReadBytes: 1}.Amplification())
	require.InDelta(t, 1.5, Totals{ReadBytes: 6, WantedBytes: 4}.Amplification(), 0)
}
