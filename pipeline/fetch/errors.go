package fetch

import "errors"

var (
	errClosed = errors.New("the fetcher is closed")
	// errCalledOff ends a load that nobody wants any more. Nobody gets to see
	// it: who wants its piece later starts another one.
	errCalledOff = errors.New("the piece is not wanted any more")
	// errDamaged ends the decoding of a shard into the spool that did not come back
	// as it was written. Nobody gets to see it.
	errDamaged = errors.New("the shard is damaged in the spool")
)
