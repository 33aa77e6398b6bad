package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// sample is what a server held at a moment.
type sample struct {
	serve.Figures
	goroutines int
	restores   int64 // so far
}

// figure is a number that must not grow.
type figure struct {
	name  string
	of    func(sample) int
	scale int // the unit that it is printed in
	// slack is how much the median of the last third may exceed that of the middle one, because
	// clients come and go. It is far below the number of restores in a third, so that a leak of one
	// per restore shows.
	slack int
}

var figures = []figure{
	{"memory in MiB", func(s sample) int { return s.MemoryBytes }, 1 << 20, 12 << 20},
	{"descriptors", func(s sample) int { return s.Descriptors }, 1, 12},
	{"threads", func(s sample) int { return s.Threads }, 1, 12},
	{"goroutines", func(s sample) int { return s.goroutines }, 1, 20},
	{"mappings", func(s sample) int { return s.Mappings }, 1, 24},
}

// leastRestores is the least number of restores in a third of a soak: enough that what each leaves
// behind can't hide in the slack.
const leastRestores = 40

const sampleEvery = 250 * time.Millisecond

// watch samples a server until ctx ends.
func (s *mounted) watch(ctx context.Context) ([]sample, error) {
	var samples []sample
	for ctx.Err() == nil {
		f, err := serve.FiguresOf(s.Cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		b, err := os.ReadFile(s.path("status.json"))
		if err != nil {
			return nil, err
		}
		var status struct {
			Process struct {
				Goroutines int `json:"goroutines"`
			} `json:"process"`
		}
		if err := json.Unmarshal(b, &status); err != nil {
			return nil, err
		}
		samples = append(samples, sample{f, status.Process.Goroutines, s.done.restores.Load()})
		pause(ctx, sampleEvery)
	}
	return samples, nil
}

// median returns the median of a figure.
func (f figure) median(samples []sample) int {
	values := make([]int, len(samples))
	for i, s := range samples {
		values[i] = f.of(s)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// judge describes the figures in the second and the last third of the samples, and returns the
// names of those that have grown.
func judge(samples []sample) (text string, grown []string) {
	third := len(samples) / 3
	middle, end := samples[third:2*third], samples[2*third:]
	restores := end[len(end)-1].restores - end[0].restores
	var b strings.Builder
	for _, f := range figures {
		was, is := f.median(middle), f.median(end)
		per := 0.0
		if restores > 0 {
			per = float64(is-was) / float64(f.scale) / float64(restores) * 1000
		}
		fmt.Fprintf(&b, "  %-14s %5d in the second third, %5d in the last: %+.1f per 1000 restores\n", f.name, was/f.scale, is/f.scale, per)
		if is-was > f.slack && (!serve.RaceBuilt || f.scale == 1) { // the race detector needs memory itself
			grown = append(grown, f.name)
		}
	}
	fmt.Fprintf(&b, "  peak of memory with files: %d MiB", samples[len(samples)-1].PeakBytes>>20)
	if restores < leastRestores {
		grown = append(grown, fmt.Sprintf("(nothing can be said: %d restores in the last third)", restores))
	}
	return b.String(), grown
}

func TestLeaksOfEachRestoreAreDetected(t *testing.T) {
	run := func(leak func(s *sample, restores int)) []string {
		var samples []sample
		for i := range 300 {
			// Noise like that of clients that come and go.
			s := sample{serve.Figures{MemoryBytes: 40<<20 + i*7919%11<<20, Descriptors: 30 + i*31%9, Threads: 12, Mappings: 90 + i*17%13}, 50 + i*13%20, int64(i)}
			leak(&s, i)
			samples = append(samples, s)
		}
		_, grown := judge(samples)
		return grown
	}
	require.Empty(t, run(func(*sample, int) {}))
	if !serve.RaceBuilt {
		require.Equal(t, []string{"memory in MiB"}, run(func(s *sample, n int) { s.MemoryBytes += n << 18 }))
	}
	require.Equal(t, []string{"descriptors"}, run(func(s *sample, n int) { s.Descriptors += n }))
	require.Equal(t, []string{"threads"}, run(func(s *sample, n int) { s.Threads += n }))
	require.Equal(t, []string{"goroutines"}, run(func(s *sample, n int) { s.goroutines += n }))
	require.Equal(t, []string{"mappings"}, run(func(s *sample, n int) { s.Mappings += n }))
	require.NotEmpty(t, run(func(s *sample, _ int) { s.restores = 7 }))
}
