package filter

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// crashes counts how often in a row a program has ended badly, without having done anything
// in between. It is safe for concurrent use.
type crashes struct {
	inARow atomic.Int64
	most   int64
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
var errCrashes = errors.New("it crashes on all that it is given")

// tooMany is an error where the program is not to be started any more.
func (c *crashes) tooMany() error {
	if n := c.inARow.Load(); n >= c.most {
		return fmt.Errorf("%w: %d times in a row", errCrashes, n)
	}
	return nil
}

// add takes in a crash, and gives its error: where there are too many, one that says so.
func (c *crashes) add(name string, err error) error {
	if n := c.inARow.Add(1); n >= c.most {
		return fmt.Errorf("%w: %d times in a row, the last time on %s: %w: try it by hand on one unit (lsiofs help filter)", errCrashes, n, name, err)
	}
	return err
}

// end says that the program has done something.
func (c *crashes) end() { c.inARow.Store(0) }
