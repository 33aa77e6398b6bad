package local

import (
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
)

// verifier is what an engine verifies an open file with when reads of it have
// ended. Attributes of local files are in the kernel's memory, as they are open.
// Those of remote files the server is asked for: what the kernel keeps of them may
// be a minute old, when a read has brought bytes of now.
func verifier(fd int, o storage.Object, remote bool) func() error {
	if !remote {
		return func() error { return verify(fd, o) }
	}
	var l looks
	return func() error { return l.one(func() error { return identity.CheckAsking(fd, o) }) }
}

// looks are the questions about one file to its server, one at a time: whoever
// comes while one is under way waits for the next one, which is for all of them.
// They wait where reads of the file wait that stall, in the engine's threads for
// these (package uring), and are told the same.
type looks struct {
	mu   sync.Mutex
	now  *look // under way, or the last one
	next *look // has not begun
}

type look struct {
	ended chan struct{}
	err   error // once ended is closed
}

// one has ask called after one has been, perhaps by somebody else, and gives its
// error.
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
