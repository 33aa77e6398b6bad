package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// step is one step in opening a dataset. open returns the function that closes it, nil if there is
// nothing to close. If open fails, it leaves nothing open.
type step struct {
	name string
	open func() (shut func() error, err error)
}

// opened owns what the steps have opened. close closes it in the reverse order, so that everything
// is closed before what it was made from. The zero value is empty.
type opened struct {
	// after is called after each step; if it fails, the step fails with its error. Nil except in
	// tests.
	after func(step string) error

	mu    sync.Mutex
	shuts []func() error // in the order of the steps
}

// take runs steps one after the other, up to the first that fails. What is open by then stays open:
// the caller closes it.
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

// close closes all that is open, even if some of it fails, and returns the errors. A second call
// does not close anything again.
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
