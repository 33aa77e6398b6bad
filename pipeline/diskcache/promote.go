package diskcache

import (
	"math"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// ownReader is the reader as which the cache itself gives hints to the storage below. Others are
// numbered from 1.
const ownReader = math.MaxUint64

// hurry moves flights that a reader waits for before everything that was only announced, and before
// the rest of the fill.
func (s *Storage) hurry(flights []*flight) {
	if s.caps.Hints == nil || len(flights) == 0 {
		return
	}
	s.hurried.Lock()
	defer s.hurried.Unlock()
	s.urgent = slices.DeleteFunc(append(s.urgent, flights...), (*flight).isBack)
	blocks := make([]storage.Block, len(s.urgent))
	for i, f := range s.urgent {
		blocks[i] = storage.Block{Object: f.object.listed, OffsetBytes: f.pages.begin * pageBytes, SizeBytes: f.pages.bytes()}
	}
	s.caps.Hints.Want(ownReader, blocks)
}

// isBack reports whether the storage below has nothing more to do for the flight.
func (f *flight) isBack() bool {
	f.object.mu.Lock()
	defer f.object.mu.Unlock()
	return f.arrived || f.gone
}

// calm ends a flight that may have been hurried.
func (s *Storage) calm(f *flight) {
	s.hurried.Lock()
	defer s.hurried.Unlock()
	if i := slices.Index(s.urgent, f); i >= 0 {
		s.urgent = slices.Delete(s.urgent, i, i+1)
	}
}
