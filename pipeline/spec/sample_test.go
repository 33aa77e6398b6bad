package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSampleAcceptsOneOfN(t *testing.T) {
	for text, want := range map[string]Subsample{"1/1": {}, "1/2": {Of: 2}, "1/39": {Of: 39}, "1/65536": {Of: 65536}} {
		got, err := ParseSample(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		require.Equal(t, text, got.String())
	}
	for _, text := range []string{"", "1", "/2", "2/3", "1/0", "1/65537", "1/ 2", "1/02", "1/+2", "1/-2", "0.5", "1/2 ", "1/99999999999999999999"} {
		_, err := ParseSample(text)
		require.ErrorContains(t, err, "write 1/n", text)
	}
}

func TestSubsetsRotate(t *testing.T) {
	s := Subsample{Of: 3}
	for epoch, want := range []uint64{0, 1, 2, 0, 1} {
		require.Equal(t, want, s.Phase(uint64(epoch)))
	}
	require.Zero(t, Subsample{}.Phase(7))
	require.Equal(t, Subsample{}, Subsample{Of: 1, Seed: 9}.Or())
}

func TestOutOfBoundsSamplesAreNamed(t *testing.T) {
	s := Default()
	s.Dataset = "d"
	s.Order.Sample = Subsample{Of: 65537}
	require.ErrorContains(t, s.Validate(), "--sample (1/65537)")
}
