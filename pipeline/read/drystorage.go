package read

import (
	"math/bits"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// ReadCounts counts the reads of a storage.
type ReadCounts struct {
	Reads     uint64
	ReadBytes int64
	ByLength  [65]uint64 // reads by the bit length of their size in bytes
}

// Add counts a read.
func (r *ReadCounts) Add(bytes int64) {
	r.Reads++
	r.ReadBytes += bytes
	r.ByLength[bits.Len64(uint64(bytes))]++
}

// dryStorage completes each read without data, and counts it. Reads complete when complete is
// called, on the caller's goroutine: reads in progress take memory, which determines what can be
// kept and read together.
type dryStorage struct {
	storage.Storage // nil: only Submit and Caps are called
	caps            storage.Caps

	// oneSubmit means that Submit first completes all earlier reads: a storage is about as fast as
	// its reader, so one stretch of a gatherer's reads is in progress at a time.
	oneSubmit bool

	mu     sync.Mutex
	counts ReadCounts
	queue  []*storage.Read // oldest first; those before next are nil
	next   int
}

// Submit implements storage.Storage.
func (s *dryStorage) Submit(reads []*storage.Read) {
	for s.oneSubmit && s.complete() {
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, reads...)
}

// completeNow completes reads at once. It is for decoders, which hold no lock when they submit reads.
func (s *dryStorage) completeNow(reads []*storage.Read) {
	for _, r := range reads {
		s.done(r)
	}
}

// complete completes the oldest read, and reports whether there was one.
func (s *dryStorage) complete() bool {
	s.mu.Lock()
	if s.next == len(s.queue) {
		s.mu.Unlock()
		return false
	}
	r := s.queue[s.next]
	s.queue[s.next] = nil
	if s.next++; s.next == len(s.queue) {
		s.queue, s.next = s.queue[:0], 0
	}
	s.mu.Unlock()
	s.done(r)
	return true
}

func (s *dryStorage) done(r *storage.Read) {
	if r.Wanted != nil && !r.Wanted() {
		r.Done(storage.ErrUnwanted)
		return
	}
	s.mu.Lock()
	s.counts.Add(int64(len(r.Buf)))
	s.mu.Unlock()
	r.Done(nil)
}

func (s *dryStorage) counted() ReadCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Caps implements storage.Storage.
func (s *dryStorage) Caps() storage.Caps { return s.caps }

// dryHints ignores hints, which affect real reads only. It has the room of a real storage.
type dryHints struct{ use storage.HintUse }

var _ storage.Hints = dryHints{}

func (dryHints) Want(uint64, []storage.Block)   {}
func (dryHints) Passed(uint64, []storage.Block) {}
func (dryHints) Drop(uint64)                    {}
func (h dryHints) Use() storage.HintUse         { return h.use }
func (dryHints) SetShare(int64)                 {}

// newDryStorage returns a storage with those capabilities of another one that affect what is read.
// Nothing is mapped: a dry run assumes a cold page cache.
func newDryStorage(other storage.Caps) *dryStorage {
	s := new(dryStorage)
	if other.Hints != nil && !other.Hints.Use().Exact {
		s.caps.Hints = dryHints{other.Hints.Use()}
	}
	return s
}
