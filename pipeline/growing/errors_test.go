package growing

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsReportProgressOfRun(t *testing.T) {
	for want, err := range map[string]error{
		"epoch 8 is not available yet: 12 000 of 50 000 new units": &NotYetError{Epoch: 8, Have: 12000, Needed: Amount{Units, 50000}},
		"epoch 0 is not available yet: there are no records":       &NotYetError{Empty: true, Needed: Amount{Units, 5}},
		"epoch 8 is not available yet":                             &NotYetError{Epoch: 8},
	} {
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, ErrNotYet)
	}
	err := &NoEpochError{Epoch: 12, At: "this run is at 8"}
	require.EqualError(t, err, "epoch 12 does not exist: this run is at 8")
	require.ErrorIs(t, err, ErrNoEpoch)
}

func TestThousandsAreGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567", 100000: "100 000"} {
		require.Equal(t, want, Grouped(n))
	}
}
