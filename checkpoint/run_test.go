package checkpoint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

var (
	thisRun  = strings.Repeat("3f", 16)
	otherRun = strings.Repeat("a0", 16)
)

func TestOtherRunsAndOtherSnapshotsAreRefused(t *testing.T) {
	static := subject()
	grows := static
	grows.Run = thisRun
	asked := false
	grows.At = func(epoch uint64) (string, uint64, error) {
		asked = true
		if epoch == 7 {
			return static.Dataset, static.Records, nil
		}
		return strings.Repeat("cd", 32), static.Records, nil
	}
	state := State{Dataset: static.Dataset, Run: thisRun, Order: static.Order, Epoch: 7, Done: []order.Done{interleaved(1, 9, 8)}}
	written := string(state.Marshal(records))
	require.Contains(t, written, `", "run": "`+thisRun+"\",\n \"order\": ")
	read, err := Parse([]byte(written))
	require.NoError(t, err)
	require.Equal(t, state, read)
	p, err := Resolve([]byte(written), grows)
	require.NoError(t, err)
	require.EqualValues(t, 7, p.Epoch)
	for i := range written {
		require.NoError(t, Possible([]byte(written[:i])))
	}

	refused := func(doc string, s Subject, why ...string) {
		t.Helper()
		asked = false
		_, err := Resolve([]byte(doc), s)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal)
		for _, words := range why {
			require.ErrorContains(t, err, words)
		}
	}
	refused(written, static, "it is from run "+thisRun+" of a growing dataset", "mount with --grow")
	other := state
	other.Run = otherRun
	refused(string(other.Marshal(records)), grows, "it is from run "+otherRun, "--run", `restore {"epoch": 7, "samples": 17}`)
	require.False(t, asked, "the epochs of another run are none of ours")
	without := state
	without.Run = ""
	refused(string(without.Marshal(records)), grows, "does not grow", "without --grow")
	later := state
	later.Epoch = 8
	refused(string(later.Marshal(records)), grows, "epoch 8 of this run has another snapshot")
	for bad, why := range map[string]string{`"3f"`: `run ("3f") must be 32 hexadecimal digits`, `""`: "must be 32", `7`: "run", `"` + strings.Repeat("3F", 16) + `"`: "lower case"} {
		refused(strings.Replace(written, `"`+thisRun+`"`, bad, 1), grows, why)
	}
	refused(`{"epoch": 3, "run": "`+thisRun+`"}`, grows, "lacks")

	_, err = Merge([]State{state, other})
	require.ErrorContains(t, err, "run is "+thisRun+" in the first and "+otherRun+" in this one")
	_, err = Merge([]State{state, without})
	require.ErrorContains(t, err, "and none in this one")
	merged, err := Merge([]State{state, state})
	require.NoError(t, err)
	require.Equal(t, state, merged)
	require.Equal(t, thisRun, Live(grows, Position{Epoch: 7}, spec.Assignment{Workers: 2, Batch: 1}, []uint64{1, 2}).Run)
}
