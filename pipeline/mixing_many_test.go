package pipeline

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// The maximum number of sources share the descriptors that one dataset may use: open files stay
// below the usual limit of 1024, and all records are there.
func TestMaximumSourcesShareDescriptors(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Max < 1024 {
		t.Skip("the limit on descriptors is below the usual one")
	}
	low := limit
	low.Cur = 1024
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	s := testSpec(t, "")
	for i := range spec.MaxSources {
		s.Mix.Sources = append(s.Mix.Sources, spec.Source{Name: fmt.Sprintf("s%d", i), Weight: million(1), Dataset: makeSource(t, fmt.Sprint(i), 20, 2, never)})
	}
	s.Mix.Length = spec.MixAll
	for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan} {
		s.Read = read
		before := descriptors()
		d, err := Open(t.Context(), s, Options{})
		require.NoError(t, err)
		lines := dealt(t, d, 0, nil, s.Deal)
		require.Less(t, descriptors()-before, 900)
		slices.SortFunc(lines, slices.Compare)
		distinct := slices.CompactFunc(lines, slices.Equal)
		require.Len(t, distinct, spec.MaxSources*40)
		require.Zero(t, d.Status().Fetch.Errors)
		require.NoError(t, d.Close())
	}
}
