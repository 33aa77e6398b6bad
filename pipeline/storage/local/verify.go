package local

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
)

// verifier returns the function with which an engine verifies an open file when reads of it have
// ended. The kernel has current attributes of local files, because they are open. For remote files
// the server is asked: the attributes that the kernel caches may be a minute old, while a read
// returned current bytes.
func verifier(fd int, o storage.Object, remote bool) func() error {
	if !remote {
		return func() error { return verify(fd, o) }
	}
	var l looks
	return func() error { return l.one(func() error { return identity.CheckAsking(fd, o) }) }
}

// looks are the queries about one file to its server, one at a time: callers that arrive during one
// wait for the next one, which serves them all. They wait in the engine's threads for slow reads
// (package uring), where stalled reads of the file wait too, and all get the same result.
type looks struct {
	mu   sync.Mutex
	now  *look // running, or the last one
	next *look // not begun
}

type look struct {
	ended chan struct{}
	err   error // once ended is closed
}

// one returns the error of a call of ask that begins after the call of one. The call may be made by
// another goroutine.
func (l *looks) one(ask func() error) error {
	l.mu.Lock()
	if x := l.next; x != nil {
		l.mu.Unlock()
		<-x.ended
		return x.err
	}
	x, before := &look{ended: make(chan struct{})}, l.now
	l.next = x
	l.mu.Unlock()
	if before != nil {
		<-before.ended
	}
	l.mu.Lock()
	l.now, l.next = x, nil
	l.mu.Unlock()
	x.err = ask()
	close(x.ended)
	return x.err
}
