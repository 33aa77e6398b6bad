package union

import "github.com/lsiofs/lsiofs/pipeline/storage"

// hints passes hints on to the sources that take them. Other sources' blocks are dropped.
type hints struct {
	of  *Storage
	to  []storage.Hints // by source; nil if it takes none
	use storage.HintUse // without RoomBytes
}

// newHints returns nil if no source takes hints. Blocks are of one kind, so if one source wants them
// exact, sources of the other kind are not told. (A mixture never has both.) If one source stores
// nothing on a disk, the union does not Keep.
func newHints(s *Storage) *hints {
	h := &hints{of: s, to: make([]storage.Hints, len(s.sources))}
	any := false
	for i := range s.caps {
		if to := s.caps[i].Hints; to != nil {
			h.to[i], any = to, true
			h.use.Exact = h.use.Exact || to.Use().Exact
		}
	}
	if !any {
		return nil
	}
	h.use.Keeps = true
	for i, to := range h.to {
		switch {
		case to == nil:
		case to.Use().Exact != h.use.Exact:
			h.to[i] = nil
		default:
			h.use.Keeps = h.use.Keeps && to.Use().Keeps
		}
	}
	return h
}

// split returns the blocks of each source, as the source names them.
func (h *hints) split(blocks []storage.Block) [][]storage.Block {
	of := make([][]storage.Block, len(h.to))
	for _, b := range blocks {
		var i int
		if i, b.Object = h.of.below(b.Object); i >= 0 && h.to[i] != nil {
			of[i] = append(of[i], b)
		}
	}
	return of
}

// Want implements storage.Hints. Every source is called, even without blocks: a call replaces what
// the reader announced before.
func (h *hints) Want(reader uint64, blocks []storage.Block) {
	of := h.split(blocks)
	for i, to := range h.to {
		if to != nil {
			to.Want(reader, of[i])
		}
	}
}

// Passed implements storage.Hints.
func (h *hints) Passed(reader uint64, blocks []storage.Block) {
	for i, of := range h.split(blocks) {
		if len(of) > 0 {
			h.to[i].Passed(reader, of)
		}
	}
}

// Drop implements storage.Hints.
func (h *hints) Drop(reader uint64) {
	for _, to := range h.to {
		if to != nil {
			to.Drop(reader)
		}
	}
}

// Use implements storage.Hints. RoomBytes is the least of any source: caches on one disk share it.
func (h *hints) Use() storage.HintUse {
	use, any := h.use, false
	for _, to := range h.to {
		if to == nil || !use.Keeps {
			continue
		}
		if room := to.Use().RoomBytes; !any || room < use.RoomBytes {
			use.RoomBytes, any = room, true
		}
	}
	return use
}

// SetShare implements storage.Hints: all open data may be of one source.
func (h *hints) SetShare(bytes int64) {
	if !h.use.Keeps {
		return
	}
	for _, to := range h.to {
		if to != nil {
			to.SetShare(bytes)
		}
	}
}
