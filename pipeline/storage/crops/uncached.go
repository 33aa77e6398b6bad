package crops

import "github.com/lsiofs/lsiofs/uring"

// unkept is memory for decoded bytes that are not cached. It is mapped rather than allocated by Go,
// which may zero what it allocates: pages that are never written take no memory, whatever chunk
// size a document claims. It is not safe for concurrent use.
type unkept struct {
	mem []byte
}

// room returns n bytes of arbitrary content, valid until the next call.
func (s *unkept) room(n int64) ([]byte, error) {
	if int64(len(s.mem)) < n {
		s.close()
		mem, err := uring.Map(int(n))
		if err != nil {
			return nil, err
		}
		s.mem = mem
	}
	return s.mem[:n], nil
}

func (s *unkept) close() {
	_ = uring.Unmap(s.mem) // nothing to do about it: only memory is lost
	s.mem = nil
}
