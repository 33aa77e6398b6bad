package cubes

import (
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
)

// sizes is what a job takes of each of a worker's buffers.
type sizes struct{ stored, brick, first, second, block, index int64 }

func (x sizes) sum() int64 { return x.stored + x.brick + x.first + x.second + x.block + x.index }

// with is what is held after a job that takes y: buffers are not made smaller.
func (x sizes) with(y sizes) sizes {
	return sizes{max(x.stored, y.stored), max(x.brick, y.brick), max(x.first, y.first), max(x.second, y.second), max(x.block, y.block), max(x.index, y.index)}
}

// fit makes ready for a job of some size, for which some bytes were taken beside each: where the buffers would
// become larger than both, they are let go of first.
func (b *buffers) fit(n sizes, each, taken int64) {
	if b.held = b.held.with(n); b.held.sum()-taken > each {
		b.trim()
		b.held = n
	}
}

// left lets go of what may not be held any more after a job.
func (b *buffers) left(each, taken int64) {
	b.held.index = 0                              // the collector's
	if int64(len(b.stored.mem)) > b.held.stored { // an index was read into it
		b.stored.close()
	}
	if taken > 0 || b.held.sum() > each {
		b.trim()
	}
}

// buffers are what a worker decodes with.
type buffers struct {
	decoder *codec.Decoder
	blosc   *blosc.Decoder
	unkept  unkept // where bricks are decoded that are not kept
	stored  unkept // what is read from memory
	between [2]unkept
	// What an audit reads is the collector's: after an error it may still be written to.
	read []byte
	held sizes // what all of it is at most
}

func newBuffers() *buffers {
	b := &buffers{blosc: blosc.NewDecoder()}
	b.decoder = codec.NewDecoderIn(func(i int, n int64) ([]byte, error) { return b.between[i].room(n) })
	return b
}

// trim lets go of what large bricks need.
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
