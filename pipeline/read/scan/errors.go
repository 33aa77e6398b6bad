package scan

import (
	"errors"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
)

var (
	errClosed = budget.ErrClosed
	// errCalledOff ends a load that nobody wants any more. Nobody gets to see
	// it: who wants its piece later starts another one.
	errCalledOff = errors.New("the piece is not wanted any more")
	// errReaderClosed is for who asks a closed reader of a sample.
	errReaderClosed = errors.New("the reader is closed, and no other one reads this epoch")
)
