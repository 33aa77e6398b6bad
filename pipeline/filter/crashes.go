package filter

import (
	"errors"
	"fmt"
	"sync"
)

// crashes counts how often in a row a program has ended badly, without having done anything
// in between. It is safe for concurrent use.
type crashes struct {
	most int64

	mu     sync.Mutex
	inARow int64
	last   error // where there are too many: what is said of them
}

// leastCrashes is how many crashes in a row show that a program does not crash on some
// units, but on all: these are fifty, each of them asked for twice.
const leastCrashes = 100

// newCrashes is for so many processes, of which all may crash a few times for one reason.
func newCrashes(processes int) *crashes {
	return &crashes{most: max(leastCrashes, 4*int64(processes))}
}

// errCrashes is wrapped by errors about a program that has done nothing for long. Asked for
// more, it would only be started again and again.
var errCrashes = errors.New("it crashes on everything that it is given")

// tooMany is an error where the program is not to be started any more: that of the last
// crash, since whoever asks first ends the run.
func (c *crashes) tooMany() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// add takes in a crash, and gives its error: where there are too many, one that says so.
func (c *crashes) add(name string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inARow++; c.inARow < c.most {
		return err
	}
	c.last = fmt.Errorf("%w: %d times in a row, the last time on %s: %w: try it by hand on one unit (lsiofs help filter)", errCrashes, c.inARow, name, err)
	return c.last
}

// end says that the program has done something.
func (c *crashes) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inARow, c.last = 0, nil
}
