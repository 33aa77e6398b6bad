package read

import (
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
)

// Options are the settings of a Fetcher. Of options.Options, Input and Decisions are not set by
// callers of New.
type Options = options.Options

// SpoolOptions configures where and how compressed shards are spooled.
type SpoolOptions = options.Spool

// KeptShards are the shards that are decoded to a shelf.
type KeptShards = options.KeptShards

// Part is a subset of a catalog's records. The others are never asked for, so they are neither
// waited for nor kept. It is safe for concurrent use.
type Part = chunkmap.Part

// Memory is a budget that several fetchers share. Fetchers that are being read have equal shares;
// an idle one gives up nearly all of its share when another one needs it.
type Memory = budget.Shared

// NewMemory returns a budget of that many bytes.
func NewMemory(bytes int64) *Memory { return budget.NewShared(bytes) }
