package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExitCodesAreStable(t *testing.T) {
	// Scripts rely on these: a change here is a breaking change.
	want := map[string]Code{"ok": 0, "failure": 1, "usage": 2, "dataset": 3, "mount": 4, "checkpoint": 5, "check": 6, "verify": 7, "not yet": 8, "interrupted": 130, "pipe": 141}
	got := map[string]Code{}
	for _, e := range codes {
		require.Equal(t, e.Name, e.Code.Name())
		require.NotEmpty(t, e.Meaning)
		got[e.Name] = e.Code
	}
	require.Equal(t, want, got)
	require.Equal(t, "unknown", Code(77).Name())
}

func TestErrorsKeepTheirFirstCode(t *testing.T) {
	base := errors.New("x")
	err := fmt.Errorf("y: %w", With(Mount, base))
	require.Equal(t, Mount, CodeOf(With(Dataset, err)))
	require.ErrorIs(t, err, base)
	require.Equal(t, Failure, CodeOf(base))
	require.Equal(t, OK, CodeOf(nil))
	require.NoError(t, With(Mount, nil))
}

func TestCancellationAlwaysMeansInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := With(Dataset, fmt.Errorf("open x: %w", ctx.Err()))
	require.Equal(t, Interrupted, CodeOf(OrInterrupted(ctx, err)))
	require.EqualError(t, OrInterrupted(ctx, err), "interrupted")
	require.Equal(t, Dataset, CodeOf(OrInterrupted(ctx, Errorf(Dataset, "x: %w", ctx.Err()))), "an error with a code of its own keeps it")
	require.Equal(t, err, OrInterrupted(t.Context(), err), "another context was cancelled")
}
