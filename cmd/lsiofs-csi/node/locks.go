package node

import (
	"context"
	"sync"
)

// locks provides one lock per name. The zero value is ready for use.
type locks struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	free  chan struct{} // has an element while the lock is free
	users int           // holders and waiters
}

func (l *locks) turn(name string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held[name]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		t.free <- struct{}{}
		if l.held == nil {
			l.held = map[string]*turn{}
		}
		l.held[name] = t
	}
	t.users++
	return t
}

func (l *locks) leave(name string, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.held, name)
	}
}

// lock waits for a name's lock, or until ctx ends. The caller calls unlock once.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	t := l.turn(name)
	select {
	case <-t.free:
	case <-ctx.Done():
		l.leave(name, t)
		return nil, ctx.Err()
	}
	return func() { t.free <- struct{}{}; l.leave(name, t) }, nil
}

// try returns false if the name is locked.
func (l *locks) try(name string) (unlock func(), ok bool) {
	t := l.turn(name)
	select {
	case <-t.free:
		return func() { t.free <- struct{}{}; l.leave(name, t) }, true
	default:
		l.leave(name, t)
		return nil, false
	}
}
