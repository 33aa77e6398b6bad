package order

import (
	"runtime"
	"slices"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

const (
	// defaultViewBytes bounds the pages and the idle walkers of all views together. 64 readers at
	// 64 positions need 17 MiB in the default order: a page of 128 KiB and a walker of about the
	// same size each.
	defaultViewBytes = 32 << 20
	// leastPages and leastWalkers are kept whatever they take: even if a walker is larger than the
	// bound, sequential reads cost no replay.
	leastPages   = 16
	leastWalkers = 2
	// keptArrangements is the number of epochs whose permuted chunks and reservoir states are kept:
	// the one being read, the next one, and two more. Each takes 4 bytes per chunk and up to a
	// quarter of a byte per record.
	keptArrangements = 4
)

// Memory caches the parts of orders that views have computed, for all views of a dataset together.
// It is bounded: the least recently used parts are dropped, and computed again when they are
// needed. So any number of views may be read, at any number of positions. It is safe for concurrent
// use.
//
// A call of View.Records takes its lock once for each page that it touches.
type Memory struct {
	most int64
	// turns limits how many goroutines compute pages. More of them than CPUs would compute nothing
	// sooner, and each has a walker.
	turns chan struct{}

	mu     sync.Mutex
	pages  map[pageKey]*page
	held   int64
	idle   int  // number of idle walkers
	recent item // head of the ring: recent.older is the most recently used item
	epochs []*Epoch
}

// item is a page or a walker kept by Memory. It is guarded by Memory.mu.
type item struct {
	bytes        int64
	page         *page // or:
	walker       *rest
	of           *sequence // the walker's sequence
	newer, older *item
}

// NewMemory returns a memory of at most mostBytes; 0 means the default.
func NewMemory(mostBytes int64) *Memory {
	if mostBytes == 0 {
		mostBytes = defaultViewBytes
	}
	m := &Memory{most: mostBytes, turns: make(chan struct{}, max(4, 2*runtime.GOMAXPROCS(0))), pages: make(map[pageKey]*page)}
	m.recent.older, m.recent.newer = &m.recent, &m.recent
	return m
}

// HeldBytes returns about how many bytes the pages and idle walkers take now.
func (m *Memory) HeldBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// link adds an item as the most recently used one.
func (m *Memory) link(it *item) {
	m.held += it.bytes
	if it.walker != nil {
		m.idle++
	}
	m.front(it)
}

func (m *Memory) front(it *item) {
	it.newer, it.older = &m.recent, m.recent.older
	it.older.newer, m.recent.older = it, it
}

// unlink removes an item.
func (m *Memory) unlink(it *item) {
	it.newer.older, it.older.newer = it.older, it.newer
	it.newer, it.older = nil, nil
	m.held -= it.bytes
	if it.walker != nil {
		m.idle--
	}
}

// touch makes an item the most recently used one.
func (m *Memory) touch(it *item) {
	it.newer.older, it.older.newer = it.older, it.newer
	m.front(it)
}

// drop removes an item and forgets its page or walker.
func (m *Memory) drop(it *item) {
	m.unlink(it)
	if it.page != nil {
		delete(m.pages, it.page.key)
	} else {
		it.of.idle = slices.DeleteFunc(it.of.idle, func(x *item) bool { return x == it })
	}
}

// trim drops the least recently used items until the total is within the bound.
func (m *Memory) trim() {
	for it := m.recent.newer; it != &m.recent && m.held > m.most; {
		newer := it.newer
		if it.page != nil && len(m.pages) > leastPages || it.walker != nil && m.idle > leastWalkers {
			m.drop(it)
		}
		it = newer
	}
}

// use marks an epoch's arrangement as used. The arrangements used longest ago are dropped, along
// with the epochs' idle walkers, which refer to them.
func (m *Memory) use(e *Epoch) {
	if !e.arranges() {
		return
	}
	if i := slices.Index(m.epochs, e); i >= 0 {
		m.epochs = slices.Delete(m.epochs, i, i+1)
	}
	m.epochs = append(m.epochs, e)
	for i := 0; len(m.epochs) > keptArrangements && i < len(m.epochs)-1; {
		old := m.epochs[i]
		if old.holds.Load() > 0 {
			i++
			continue
		}
		m.epochs = slices.Delete(m.epochs, i, i+1)
		for it := m.recent.newer; it != &m.recent; {
			newer := it.newer
			if it.walker != nil && it.of.epoch == old {
				m.drop(it)
			}
			it = newer
		}
		old.arranged.Store(nil)
	}
}

// View is NewView with this memory, which any number of views may share.
func (m *Memory) View(e *Epoch, done []Done, deal spec.Assignment) (*View, error) {
	v, err := dealView(e, done, deal, m)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.use(e)
	return v, nil
}
