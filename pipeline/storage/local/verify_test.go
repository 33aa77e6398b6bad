package local

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A caller that arrives while the server is being queried waits for the next query, because the
// current one may have been answered before the caller's read.
func TestOneQueryServesAllEarlierCallers(t *testing.T) {
	var l looks
	var asked atomic.Int32
	begun, answer := make(chan struct{}), make(chan error)
	ask := func() error {
		asked.Add(1)
		begun <- struct{}{}
		return <-answer
	}
	first := make(chan error, 1)
	go func() { first <- l.one(ask) }()
	<-begun

	const many = 20
	errs := make([]error, many)
	var came atomic.Int32
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			came.Add(1)
			errs[i] = l.one(ask)
		})
	}
	for came.Load() < many {
		runtime.Gosched()
	}
	changed := errors.New("changed")
	answer <- nil
	require.NoError(t, <-first, "the answer to its own question")
	// Callers that arrived late may have a query of their own.
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	for done := false; !done; {
		select {
		case <-begun:
			answer <- changed
		case <-ended:
			done = true
		}
	}
	for _, err := range errs {
		require.Equal(t, changed, err)
	}
	require.GreaterOrEqual(t, asked.Load(), int32(2))
}
