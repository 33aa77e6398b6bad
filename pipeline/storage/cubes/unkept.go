package cubes

import "github.com/lsiofs/lsiofs/uring"

// unkept is memory of what is decoded and not kept. It is mapped, not the collector's, which may clear
// what it gives: what has not been written to takes none, however many bytes a document says that a brick
// has. It is not for concurrent use.
type unkept struct {
	mem []byte
}

// room gives n bytes, of any content, until it is asked again.
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
	_ = uring.Unmap(s.mem) // nothing can be done, and nothing is lost but memory
	s.mem = nil
}
