package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestOrderEndsWithSampleIfSet(t *testing.T) {
	s := subject()
	s.Order.Sample = spec.Subsample{Of: 39, Seed: 7}
	written := string(State{Dataset: s.Dataset, Order: s.Order, Done: []order.Done{interleaved(1, 9)}}.Marshal(records))
	require.Equal(t, strings.Replace(fullDocument(`{"batch": 1, "consumed": [      9]}`),
		`"chunk_records": 128}`, `"chunk_records": 128, "sample": {"of": 39, "seed": 7}}`, 1), written)
	read, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, s.Order, read.Order)
	_, err = Resolve([]byte(written), s)
	require.NoError(t, err)
	for _, other := range []string{`"of": 38, "seed": 7`, `"of": 39, "seed": 8`} {
		_, err = Resolve([]byte(strings.Replace(written, `"of": 39, "seed": 7`, other, 1)), s)
		require.ErrorContains(t, err, `order.sample is {`+other+`} in the checkpoint and {"of": 39, "seed": 7} here`)
	}
	_, err = Resolve([]byte(written), subject())
	require.ErrorContains(t, err, `in the checkpoint and all records here`)
	_, err = Resolve([]byte(strings.Replace(written, `"of": 39`, `"of": 1`, 1)), subject())
	require.NoError(t, err, "a sample of all records is none")
	for bad, why := range map[string]string{
		`{}`: "order.sample lacks of, seed", `{"of": 0, "seed": 1}`: "order.sample.of (0) must be", `{"of": 65537, "seed": 1}`: "order.sample.of (65537) must be",
		`{"of": 2}`: "order.sample lacks seed", `{"of": 2, "seed": 1, "phase": 0}`: "phase", `3`: "order.sample: expected {",
	} {
		_, err = Resolve([]byte(strings.Replace(written, `{"of": 39, "seed": 7}`, bad, 1)), s)
		require.ErrorContains(t, err, why, bad)
	}
	for i := range written {
		require.NoError(t, Possible([]byte(written[:i])))
	}
}

// If epochs differ, a document is checked against its own epoch.
func TestDocumentsAreCheckedAgainstTheirOwnEpoch(t *testing.T) {
	s := subject()
	s.Dataset, s.Records = "", 0
	gone := errors.New("epoch 2 does not exist: this run is at 1")
	s.At = func(epoch uint64) (string, uint64, error) {
		if epoch > 1 {
			return "", 0, gone
		}
		return strings.Repeat("ab", 32), 100 + epoch, nil
	}
	for epoch, most := range []int{100, 101} {
		p, err := Resolve(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, epoch, most), s)
		require.NoError(t, err)
		require.Equal(t, uint64(epoch), p.Epoch)
		_, err = Resolve(fmt.Appendf(nil, `{"epoch": %d, "samples": %d}`, epoch, most+1), s)
		require.ErrorContains(t, err, fmt.Sprintf("must be at most %d", most))
	}
	_, err := Resolve([]byte(`{"epoch": 2}`), s)
	require.ErrorIs(t, err, gone)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	_, err = Resolve([]byte(fullDocument(`{"batch": 1, "consumed": [101]}`)), s)
	require.ErrorContains(t, err, "101")
}
