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
