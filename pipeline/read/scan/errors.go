package scan

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

var (
	errClosed = budget.ErrClosed
	// errCalledOff ends a load that is no longer wanted. No reader sees it: a reader that needs the
	// piece later starts another load.
	errCalledOff = errors.New("the piece is not wanted any more")
	// errReaderClosed is returned for reads of a closed reader of a sample.
	errReaderClosed = errors.New("the reader is closed, and no other one reads this epoch")
)
