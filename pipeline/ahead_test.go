package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestReadingAnEpochPrecomputesNextEpoch(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d, err := Open(context.Background(), s, Options{Ahead: true})
	require.NoError(t, err)
	d.current.ahead.close()
	computed := make(chan nextEpoch)
	d.current.ahead = newAhead(pace{}, slog.New(slog.DiscardHandler), func(n nextEpoch, goOn func() bool) error {
		err := d.current.computeAhead(n, goOn)
		computed <- n
		return err
	})
	set, err := d.Set(context.Background(), 4, nil, s.Deal)
	require.NoError(t, err)
	_, err = set.SizeBytes(context.Background(), 0, stream.Data)
	require.NoError(t, err)
	require.Empty(t, d.current.ahead.wanted, "no reader is active")
	set.Open(0, stream.Data).Close()
	require.Equal(t, nextEpoch{5, s.Deal}, <-computed)
	require.NoError(t, d.Close(), "it waits for what is being stored")

	files := storedFiles(t, s, layoutEnding)
	require.Len(t, files, 2, "of epochs 4 and 5")
	ahead := sizesOf(t, s, 5, nil)
	require.Equal(t, files, storedFiles(t, s, layoutEnding), "it was used")
	s.IndexDir = t.TempDir()
	require.Equal(t, sizesOf(t, s, 5, nil), ahead)
}

func TestPrecomputedStatesAreStored(t *testing.T) {
	s := makeManyRecords(t)
	d := open(t, s)
	require.NoError(t, d.current.computeAhead(nextEpoch{1, s.Deal}, func() bool { return true }))
	require.Len(t, storedFiles(t, s, statesEnding), 1)
	e, err := d.Epoch(1)
	require.NoError(t, err)
	require.True(t, e.Prepared())
}

func TestNothingIsPrecomputedWithoutOption(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	require.Nil(t, d.current.ahead)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	set.Open(0, stream.Data).Close()
}

func TestOnlyLatestEpochIsPrecomputed(t *testing.T) {
	var got []uint64
	first, held := make(chan struct{}), make(chan struct{})
	last := make(chan struct{})
	a := newAhead(pace{}, slog.New(slog.DiscardHandler), func(n nextEpoch, _ func() bool) error {
		got = append(got, n.epoch)
		switch n.epoch {
		case 1:
			close(first)
			<-held
		case 9:
			close(last)
		}
		return errors.New("is only logged")
	})
	a.begun(0, spec.Assignment{})
	<-first
	for epoch := range uint64(9) {
		a.begun(epoch, spec.Assignment{})
	}
	a.begun(math.MaxUint64, spec.Assignment{}) // no epoch follows it
	close(held)
	<-last
	a.close()
	require.Equal(t, []uint64{1, 9}, got)
	a.begun(20, spec.Assignment{}) // does not block
	a.begun(21, spec.Assignment{})
}

func TestCloseStopsPrecomputingAtOnce(t *testing.T) {
	for name, p := range map[string]pace{
		"while it waits": {wait: time.Hour}, "while it rests": {rest: time.Hour}, "while it works": {work: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			reached := make(chan struct{})
			a := newAhead(p, slog.New(slog.DiscardHandler), func(_ nextEpoch, goOn func() bool) error {
				close(reached)
				for i := 0; goOn(); i++ {
					if p.work > 0 && i == 10 {
						break
					}
				}
				return nil
			})
			a.begun(0, spec.Assignment{})
			if p.wait == 0 {
				<-reached
			}
			a.close()
			a.close()
		})
	}
}
