package descriptors

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a dataset and its cache keep open together, half of the limit is left.
func TestHalfOfDescriptorLimitStaysFree(t *testing.T) {
	for _, limit := range []uint64{64, 1024, 1 << 20} {
		for name, together := range map[string][]Share{
			"on a disk":            {Files, Mappings},
			"on a network, cached": {Files, Cache, Copies, CopyMappings},
			"at a service, cached": {Cache, Copies, CopyMappings},
		} {
			sum := 0
			for _, s := range together {
				sum += s.of(limit, 0, math.MaxInt)
			}
			require.LessOrEqual(t, uint64(sum), limit/2, "%s, %d", name, limit)
		}
	}
	require.Equal(t, 8, Files.of(16, 8, 512))
	require.Equal(t, 512, Files.of(math.MaxUint64, 8, 512), "unlimited")
	require.Positive(t, Files.Of(1, 1<<30))
}
