package storage

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever a dataset and its cache keep open together, half of the limit is left.
func TestHalfOfDescriptorLimitStaysFree(t *testing.T) {
	for _, limit := range []uint64{64, 1024, 1 << 20} {
		for name, together := range map[string][]DescriptorShare{
			"on a disk":            {FilesShare, MappingsShare},
			"on a network, cached": {FilesShare, CacheShare, CopiesShare, CopyMappingsShare},
			"at a service, cached": {CacheShare, CopiesShare, CopyMappingsShare},
		} {
			sum := 0
			for _, s := range together {
				sum += s.of(limit, 0, math.MaxInt)
			}
			require.LessOrEqual(t, uint64(sum), limit/2, "%s, %d", name, limit)
		}
	}
	require.Equal(t, 8, FilesShare.of(16, 8, 512))
	require.Equal(t, 512, FilesShare.of(math.MaxUint64, 8, 512), "unlimited")
	require.Positive(t, FilesShare.Of(1, 1<<30))
}
