package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// step is one thing that is opened on the way to a dataset. open gives what closes
// it, nil where there is nothing to close; where it fails, it leaves nothing open.
type step struct {
	name string
	open func() (shut func() error, err error)
}

// opened owns what the steps of an opening have opened. close closes it in the
// opposite order, so that everything is closed before what it was made of. The zero
// value is empty.
type opened struct {
	// after is called when a step has been taken, and makes it fail with its error;
	// nil but in tests.
	after func(step string) error

	mu    sync.Mutex
	shuts []func() error // in the order of the steps
}

// take takes steps, one after the other, up to the first that fails. What is open
// by then stays open: the caller closes it.
func (o *opened) take(steps ...step) error {
	for _, s := range steps {
		shut, err := s.open()
		if err != nil {
			return err
		}
		if shut != nil {
			o.mu.Lock()
			o.shuts = append(o.shuts, shut)
			o.mu.Unlock()
		}
		if o.after == nil {
			continue
		}
		if err := o.after(s.name); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// close closes all that is open, whatever of it fails, and gives the errors. What it
// has closed it does not close again.
func (o *opened) close() error {
	o.mu.Lock()
	shuts := o.shuts
	o.shuts = nil
	o.mu.Unlock()
	var errs []error
	for _, shut := range slices.Backward(shuts) {
		errs = append(errs, shut())
	}
	return errors.Join(errs...)
}
