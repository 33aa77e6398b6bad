package rings

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInconsistentRequestIsRefused(t *testing.T) {
	r, err := newRequest(1 << 20)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.free()) }()
	for _, c := range []struct {
		length, rest uint32
		good         bool
	}{
		{40, 0, true},
		{40 + 128, 0, true},
		{40 + 128 + 1<<20, 1 << 20, true},
		{39, 0, false},
		{40 + 129, 0, false},
		{40, 1, false},
		{40 + 128 + 1<<20 + 1, 1<<20 + 1, false},
		{1<<32 - 1, 1<<32 - 1, false},
	} {
		le.PutUint32(r.header[requestLengthAt:], c.length)
		le.PutUint32(r.header[payloadBytesAt:], c.rest)
		in, err := r.In()
		require.Equal(t, c.good, err == nil, c)
		if c.good {
			require.Len(t, bytes.Join(in, nil), int(c.length))
		}
	}
}

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
