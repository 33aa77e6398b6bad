package options

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

// valid returns settings that Validate accepts.
func valid() Options {
	return Options{MemoryBytes: 1 << 20, ReadTimeout: time.Second, PieceBytes: 16 << 10, PieceRecords: 32}
}

func TestImpossibleSettingsAreRefused(t *testing.T) {
	o := valid()
	require.NoError(t, o.Validate())
	o.Memory = budget.NewShared(1 << 20)
	require.NoError(t, o.Validate())
	for want, change := range map[string]func(*Options){
		"memory budget (0 bytes) must be > 0":                                                 func(o *Options) { o.MemoryBytes = 0 },
		"the shared memory has 2097152 bytes and the budget (1048576 bytes) must be the same": func(o *Options) { o.Memory = budget.NewShared(2 << 20) },
		"read timeout (0s) must be > 0":                                                       func(o *Options) { o.ReadTimeout = 0 },
		"piece bytes (0) and piece records (32) must be > 0":                                  func(o *Options) { o.PieceBytes = 0 },
		"piece bytes (16384) and piece records (0) must be > 0":                               func(o *Options) { o.PieceRecords = 0 },
		"decoders (-1) must be >= 0":                                                          func(o *Options) { o.Decoders = -1 },
		"lookahead (-1 bytes) must be >= 0":                                                   func(o *Options) { o.LookaheadBytes = -1 },
		"lookahead records (-1) must be >= 0":                                                 func(o *Options) { o.LookaheadRecords = -1 },
	} {
		o := valid()
		change(&o)
		require.EqualError(t, o.Validate(), want)
	}
}
