package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// games is a format whose records belong together.
type games struct{ format.Format }

func (games) SplitByUnit() bool { return true }

func TestFormatReportsUnitsThatSplitKeepsTogether(t *testing.T) {
	require.Equal(t, spec.SplitByUnit, splitBy(games{}))
	require.Equal(t, spec.SplitByRecord, splitBy(lines.JSONL()))
}

func split(t testing.TB, part string, by spec.SplitBy) spec.Split {
	p, err := spec.ParsePart(part)
	require.NoError(t, err)
	return spec.Split{Part: p, Seed: 5, By: by}
}

// linesOf reads all worker files of an epoch.
func linesOf(t testing.TB, s spec.Spec) []string {
	d := open(t, s)
	set, err := d.Set(context.Background(), 1, nil, s.Deal)
	require.NoError(t, err)
	var all []string
	size := int64(0)
	for w := range s.Deal.Workers {
		data := string(readFile(t, set, w, stream.Data, 50_000))
		all = append(all, slices.Collect(strings.Lines(data))...)
		size += int64(len(data))
	}
	require.Equal(t, d.Records(), uint64(len(all)))
	require.Equal(t, d.StreamBytes(), size)
	return all
}

// The parts do not depend on the read strategy or the memory.
func TestTwoPartsContainEveryLineOnceInTotal(t *testing.T) {
	dir := makeLines(t)
	want := linesOf(t, testSpec(t, dir))
	slices.Sort(want)
	for _, by := range []spec.SplitBy{"", spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit} {
		for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadSpool} {
			if testing.Short() && (by != spec.SplitByRecord || read == spec.ReadAuto) {
				continue // a split is computed by one goroutine
			}
			for _, memory := range []int64{1 << 20, 1 << 30} {
				t.Run(fmt.Sprintf("by %s, %s, %d bytes", by, read, memory), func(t *testing.T) {
					training, validation := testSpec(t, dir), testSpec(t, dir)
					training.Order.Split, validation.Order.Split = split(t, "0..0.7", by), split(t, "0.7..1", by)
					validation.Order.Shuffle, validation.Order.Seed, validation.Deal.Workers = spec.ShuffleFull, 9, 2
					validation.Order.ChunkBytes, validation.MemoryBytes, validation.Read = 1000, memory, read
					training.MemoryBytes, training.Read = memory, read
					got := append(linesOf(t, training), linesOf(t, validation)...)
					slices.Sort(got)
					require.True(t, slices.Equal(want, got))
				})
			}
		}
	}
}

func TestEachPartStoresItsOwnLayouts(t *testing.T) {
	s := testSpec(t, makeLines(t))
	sizes := map[string][]int64{}
	parts := map[string]spec.Split{
		"all": {}, "training": split(t, "0..0.9", spec.SplitByRecord), "validation": split(t, "0.9..1", spec.SplitByRecord),
		"another seed": {Part: split(t, "0..0.9", "").Part, Seed: 6, By: spec.SplitByRecord}, "by shard": split(t, "0..0.9", spec.SplitByShard),
	}
	for name, part := range parts {
		s.Order.Split = part
		sizes[name] = sizesOf(t, s, 0, nil)
	}
	require.Len(t, storedFiles(t, s, layoutEnding), len(parts))
	for name, part := range parts {
		s.Order.Split = part
		require.Equal(t, sizes[name], sizesOf(t, s, 0, nil), name)
		total := int64(0)
		for _, size := range sizes[name] {
			total += size
		}
		require.Equal(t, open(t, s).StreamBytes(), total, name)
	}
	require.Len(t, storedFiles(t, s, layoutEnding), len(parts), "they were used again")
}

func TestEmptyPartOpensAndReads(t *testing.T) {
	for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadSpool} {
		s := testSpec(t, makeLines(t))
		s.Order.Split, s.Read = split(t, "0.5..0.500000001", spec.SplitByShard), read
		require.Empty(t, linesOf(t, s))
		d := open(t, s)
		require.Zero(t, d.Chunks())
		set, err := d.Set(context.Background(), 0, nil, s.Deal)
		require.NoError(t, err)
		start, err := d.Expect(set.View(), 0)
		require.NoError(t, err)
		require.Empty(t, start.Text())
		f, err := d.Forecast(context.Background(), set.View(), 0, 100)
		require.NoError(t, err)
		require.Zero(t, f.Records)
	}
}

func TestOpeningWithSplitStopsWithItsContext(t *testing.T) {
	s := testSpec(t, makeLines(t))
	open(t, s) // makes the index
	s.Order.Split = split(t, "0..0.5", spec.SplitByRecord)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Open(ctx, s, Options{})
	require.ErrorIs(t, err, context.Canceled)
}
