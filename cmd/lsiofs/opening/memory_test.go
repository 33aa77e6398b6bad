package opening

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestMemoryThatDoesNotFitIsWarnedOf(t *testing.T) {
	require.Empty(t, memoryWarning(1<<30, math.MaxInt64))
	require.Empty(t, memoryWarning(1<<30, 1<<30+150<<20))
	require.Equal(t, "--memory 1GiB does not fit: lsiofs takes that and up to 150MiB, and this process may have 512MiB: it may be killed; "+
		"give --memory 128MiB, which is the default here, or raise the limit of its control group (memory.max)", memoryWarning(1<<30, 512<<20))
	require.Contains(t, memoryWarning(32<<20, 128<<20), "may have 128MiB: it may be killed; raise the limit")
	for allowed := int64(256 << 20); allowed <= 64<<30; allowed *= 2 {
		require.Empty(t, memoryWarning(spec.MemoryWithin(allowed), allowed), "the default fits")
	}
}
