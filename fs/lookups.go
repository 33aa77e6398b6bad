package fs

import (
	"sync"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
)

// lookups bounds how many names below epoch-N are kept. Every number makes a name, and the kernel
// keeps a name, and with it a node of this process, until it is short of memory itself. So the
// kernel is asked to drop the names that were looked up longest ago. A name that is in use is
// looked up again, and leads to the same node.
type lookups struct {
	mu      sync.Mutex
	names   []lookedUp // oldest first
	kept    int
	drop    func(lookedUp)
	running bool
	closed  bool
	worker  sync.WaitGroup
}

// lookedUp is a name that was given a node.
type lookedUp struct {
	parent *fusefs.Inode
	name   string
}

// lookupsKept amounts to some 20 MiB of nodes, and some more in the kernel.
const lookupsKept = 1 << 15

func newLookups(kept int, drop func(lookedUp)) *lookups {
	return &lookups{kept: kept, drop: drop}
}

// notifyEntry makes the kernel drop a name. It waits for requests about the name's directory, so it
// must not be called from one. If the kernel has already dropped the name, it returns an error that
// can be ignored.
func notifyEntry(l lookedUp) { l.parent.NotifyEntry(l.name) }

// add adds a new name. Names are dropped in another goroutine.
func (l *lookups) add(parent *fusefs.Inode, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.names = append(l.names, lookedUp{parent, name})
	if len(l.names) > l.kept && !l.running {
		l.running = true
		l.worker.Go(l.run)
	}
}

// run drops names until few enough are left.
func (l *lookups) run() {
	for {
		l.mu.Lock()
		if len(l.names) <= l.kept || l.closed {
			l.running = false
			l.mu.Unlock()
			return
		}
		// A quarter at once, so that the rest is rarely moved.
		n := len(l.names) - l.kept + l.kept/4
		old := append([]lookedUp(nil), l.names[:n]...)
		l.names = append(l.names[:0], l.names[n:]...)
		clear(l.names[len(l.names):cap(l.names)])
		l.mu.Unlock()
		for _, name := range old {
			l.drop(name)
		}
	}
}

// close stops the dropping and waits for it.
func (l *lookups) close() {
	l.mu.Lock()
	l.closed, l.names = true, nil
	l.mu.Unlock()
	l.worker.Wait()
}
