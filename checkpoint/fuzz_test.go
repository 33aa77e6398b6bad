package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDocument checks that parsing never panics; accepted documents are JSON and round-trip; every
// prefix of them is possible; whatever is impossible stays so with more bytes.
func FuzzDocument(f *testing.F) {
	for doc := range refusals {
		f.Add([]byte(doc), uint16(5))
	}
	f.Add([]byte(`{"epoch": 3, "samples": 20480}`), uint16(12))
	f.Add([]byte(fullDocument(`{"batch": 1, "consumed": [   5120,    5119]}, {"batch": 1, "deal": "contiguous", "consumed": [1, 2]}`)), uint16(300))
	f.Fuzz(func(t *testing.T, doc []byte, cut uint16) {
		s := subject()
		p, err := Resolve(doc, s)
		possible := Possible(doc)
		prefix := doc[:min(int(cut), len(doc))]
		if possible == nil {
			require.NoError(t, Possible(prefix))
		}
		if Possible(prefix) != nil {
			require.Error(t, possible)
		}
		if errors.Is(err, ErrIncomplete) {
			require.NoError(t, possible)
			require.False(t, json.Valid(doc))
		}
		state, parseErr := Parse(doc)
		if parseErr == nil {
			require.True(t, json.Valid(doc))
			again, err := Parse(state.Marshal(s.Records))
			require.NoError(t, err)
			require.Equal(t, state, again)
		}
		if err != nil {
			return
		}
		require.NoError(t, possible)
		require.True(t, json.Valid(bytes.TrimSpace(doc)))
		written := State{Dataset: s.Dataset, Order: s.Order, Epoch: p.Epoch, Done: p.Done}.Marshal(s.Records)
		again, err := Resolve(written, s)
		require.NoError(t, err)
		require.Equal(t, p, again)
	})
}
