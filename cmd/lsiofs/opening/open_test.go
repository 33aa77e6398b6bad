package opening

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestMemoryThatDoesNotFitWarns(t *testing.T) {
	require.Empty(t, memoryWarning(1<<30, math.MaxInt64))
	require.Empty(t, memoryWarning(1<<30, 1<<30+150<<20))
	require.Equal(t, "--memory 1GiB does not fit: lsiofs uses that and up to 150MiB more, and this process may use 512MiB, so it may be killed; "+
		"give --memory 128MiB, which is the default here, or raise its control group's limit (memory.max)", memoryWarning(1<<30, 512<<20))
	require.Contains(t, memoryWarning(32<<20, 128<<20), "may use 128MiB, so it may be killed; raise its control group's limit")
	for allowed := int64(256 << 20); allowed <= 64<<30; allowed *= 2 {
		require.Empty(t, memoryWarning(spec.MemoryWithin(allowed), allowed), "the default fits")
	}
}
