package crops

import (
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
	"github.com/lsiofs/lsiofs/uring"
)

// sizes is how much a job needs of each of a worker's buffers, in bytes.
type sizes struct{ stored, chunk, first, second, block, index int64 }

func (x sizes) sum() int64 { return x.stored + x.chunk + x.first + x.second + x.block + x.index }

// with returns the sizes after a job that needs y: buffers don't shrink.
func (x sizes) with(y sizes) sizes {
	return sizes{max(x.stored, y.stored), max(x.chunk, y.chunk), max(x.first, y.first), max(x.second, y.second), max(x.block, y.block), max(x.index, y.index)}
}

// fit prepares for a job that needs n, for which taken bytes were reserved besides the worker's own
// each. If the buffers would become larger than both together, they are freed first.
func (b *buffers) fit(n sizes, each, taken int64) {
	if b.held = b.held.with(n); b.held.sum()-taken > each {
		b.trim()
		b.held = n
	}
}

// left frees what a worker may not hold any more after a job.
func (b *buffers) left(each, taken int64) {
	b.held.index = 0                              // garbage collected memory
	if int64(len(b.stored.mem)) > b.held.stored { // an index was read into it
		b.stored.close()
	}
	if taken > 0 || b.held.sum() > each {
		b.trim()
	}
}

// buffers are the memory that a worker decodes with.
type buffers struct {
	decoder *codec.Decoder
	blosc   *blosc.Decoder
	unkept  unkept // for decoded chunks that are not cached
	stored  unkept // for stored bytes read from memory
	between [2]unkept
	// An audit's buffer is garbage collected memory: after an error it may still be written to.
	read []byte
	held sizes // upper bounds of the buffers' sizes
}

func newBuffers() *buffers {
	b := &buffers{blosc: blosc.NewDecoder()}
	b.decoder = codec.NewDecoderIn(func(i int, n int64) ([]byte, error) { return b.between[i].room(n) })
	return b
}

// trim frees the memory of large chunks.
func (b *buffers) trim() {
	b.unkept.close()
	b.stored.close()
	for i := range b.between {
		b.between[i].close()
	}
	b.decoder.Trim()
	b.blosc.Trim()
	b.read = nil
	b.held = sizes{}
}

func (b *buffers) close() {
	b.trim()
	b.decoder.Close()
	b.blosc.Close()
}

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
