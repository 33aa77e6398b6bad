package faultserver

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any range has the bytes that the whole object has there, whether it covers whole words, parts of
// words, or nothing.
func TestRangesBelongToOneObject(t *testing.T) {
	all := make([]byte, 100)
	Fill(all, "a", 1, 0)
	for begin := range all {
		for end := begin; end <= len(all); end++ {
			p := make([]byte, end-begin)
			Fill(p, "a", 1, int64(begin))
			require.Equal(t, all[begin:end], p, "[%d, %d)", begin, end)
		}
	}
	other := make([]byte, 100)
	Fill(other, "a", 2, 0)
	require.False(t, bytes.Equal(all, other), "another version")
	Fill(other, "b", 1, 0)
	require.False(t, bytes.Equal(all, other), "another object")
}
