package fs

import (
	"context"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// patience is the context of one request. It ends when the client is interrupted by a signal that
// kills it (see interrupts), when the view that the request is about is retired, or when the mount
// ends. Other signals end nothing: reads of local file systems continue, too. Nothing is started
// until a caller waits on it, since most requests are answered at once. finish must be called when
// the request is over.
type patience struct {
	interrupted <-chan struct{}
	retired     <-chan struct{} // nil if no restore ends the request
	ending      <-chan struct{} // closed when the mount ends
	client      client
	interrupts  *interrupts

	mu       sync.Mutex
	done     chan struct{} // nil until a caller waits
	finished chan struct{}
	watch    sync.WaitGroup
}

// patient makes a request's context from go-fuse's.
func patient(ctx context.Context, s *interrupts, retired, ending <-chan struct{}) *patience {
	p := &patience{interrupted: ctx.Done(), retired: retired, ending: ending, interrupts: s}
	if c, fromClient := ctx.(*fuse.Context); fromClient {
		p.client.thread = c.Pid
	}
	return p
}

func (p *patience) Deadline() (time.Time, bool) { return time.Time{}, false }
func (p *patience) Value(any) any               { return nil }

func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done, p.finished = make(chan struct{}), make(chan struct{})
		p.watch.Go(p.wait)
	}
	return p.done
}

// Err checks before it starts to watch, so that work that calls it now and then costs no goroutine.
func (p *patience) Err() error {
	select {
	case <-p.interrupted:
	case <-p.retired:
	case <-p.ending:
	default:
		return p.ended()
	}
	select {
	case <-p.Done():
		return context.Canceled
	default:
		return nil
	}
}

// ended returns the error for a client that dies without having been interrupted.
func (p *patience) ended() error {
	if !p.interrupts.unsure {
		return nil
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
		return context.Canceled
	default:
		return nil
	}
}

func (p *patience) wait() {
	select {
	case <-p.finished:
		return
	case <-p.retired:
		close(p.done)
		return
	case <-p.ending:
		close(p.done)
		return
	case <-p.interrupted:
	case <-p.interrupts.unsureAfter():
	}
	dies := p.interrupts.add(p)
	defer p.interrupts.remove(p)
	select {
	case <-p.finished:
	case <-p.retired:
		close(p.done)
	case <-p.ending:
		close(p.done)
	case <-dies:
		close(p.done)
	}
}

// finish stops watching; it does not end the context.
func (p *patience) finish() {
	p.mu.Lock()
	if p.done == nil {
		// Later calls of Done wait forever, as on a context without an end.
		p.done = make(chan struct{})
		p.mu.Unlock()
		return
	}
	close(p.finished)
	p.mu.Unlock()
	p.watch.Wait()
}

var _ context.Context = (*patience)(nil)
