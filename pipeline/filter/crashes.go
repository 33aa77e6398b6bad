package filter

import (
	"errors"
	"fmt"
	"sync"
)

// crashes counts consecutive crashes of a program without any success between. It is safe for
// concurrent use.
type crashes struct {
	most int64

	mu     sync.Mutex
	inARow int64
	last   error // error for too many crashes; nil if there are not
}

// leastCrashes is how many consecutive crashes show that a program crashes on all units, not only
// on some: it is fifty units, each tried twice.
const leastCrashes = 100

// newCrashes returns a counter for that many processes, all of which may crash a few times for one
// reason.
func newCrashes(processes int) *crashes {
	return &crashes{most: max(leastCrashes, 4*int64(processes))}
}

// errCrashes is wrapped by errors about a program that has had no success for long. It would only
// be restarted again and again.
var errCrashes = errors.New("it crashes on everything that it is given")

// tooMany returns an error if the program must not be started any more. It has the text of the last
// crash, because the first caller ends the run.
func (c *crashes) tooMany() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// add counts a crash, and returns its error; if there are too many, one that states that.
func (c *crashes) add(name string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inARow++; c.inARow < c.most {
		return err
	}
	c.last = fmt.Errorf("%w: %d times in a row, the last time on %s: %w: try it by hand on one unit (lsiofs help filter)", errCrashes, c.inARow, name, err)
	return c.last
}

// end records a success of the program.
func (c *crashes) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inARow, c.last = 0, nil
}
