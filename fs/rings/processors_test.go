package rings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcessorListsAreParsed(t *testing.T) {
	for list, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "0-1,4-6": {0, 1, 4, 5, 6}, "0,2": {0, 2}} {
		got, err := parseList(list)
		require.NoError(t, err)
		require.Equal(t, want, got, list)
	}
	for _, list := range []string{"", "0-", "x", "0-99999", "-", "3-1", "0,,1"} {
		_, err := parseList(list)
		require.Error(t, err, list)
	}
}

func TestThreadsAreBoundedOnMachinesOfAnySize(t *testing.T) {
	for n, want := range map[int]int{1: 64, 2: 64, 4: 64, 5: 51, 16: 16, 64: 4, processorsMost: 4} {
		require.Equal(t, want, workersOf(n), n)
	}
	require.Equal(t, []int{64, 1, 64, 1}, crewOf(4, []int{0, 2}), "a processor that is not there yet has a queue, too")
}
