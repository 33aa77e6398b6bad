package scan

import (
	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// waitsFor returns the stage to charge for waiting on this load, and the decoder whose waits that
// is to be split by. It is called with mu held.
func (ld *load) waitsFor() (meter.Stage, *meter.WaitClock) {
	switch {
	case ld.via != nil:
		return meter.Decompress, ld.via
	case ld.stage.Load() == isQueued || ld.pending.Load() > 0:
		return meter.Storage, nil
	}
	return meter.Gather, nil
}
