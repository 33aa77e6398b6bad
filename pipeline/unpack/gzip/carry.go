package gzip

import (
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/inflate"
)

// carryBytes holds what is left of one read of storage, too little to be decoded, and enough of
// the next one to decode it.
const carryBytes = 2 * inflate.MinInput

// carry joins reads of storage: the buffer is used up before it is filled again, so that all
// reads but the last have its size.
//
//	p:  n bytes that have left the buffer | copied bytes, which are still in it
type carry struct {
	p         [carryBytes]byte
	n, copied int
}

// input is what there is to decode.
func (c *carry) input(raw *unpack.Raw) []byte {
	if c.n > 0 {
		return c.p[:c.n+c.copied]
	}
	in, _ := raw.Buffer().Peek(raw.Buffer().Buffered()) // so many are there
	return in
}

// use passes over the first bytes of input.
func (c *carry) use(raw *unpack.Raw, used int) {
	switch {
	case c.n == 0:
		discard(raw, used)
	case used >= c.n:
		discard(raw, used-c.n)
		c.n, c.copied = 0, 0
	default:
		copy(c.p[:], c.p[used:c.n+c.copied])
		c.n -= used
	}
}

// more adds bytes to input, of which nothing could be used. It says whether there are any.
func (c *carry) more(raw *unpack.Raw) bool {
	buffer := raw.Buffer()
	if c.n == 0 {
		c.copied = copy(c.p[:], c.input(raw)) // less than inflate.MinInput
	}
	c.n += c.copied
	discard(raw, c.copied)
	c.copied = 0
	if _, err := buffer.Peek(1); err != nil {
		return false
	}
	next, _ := buffer.Peek(min(buffer.Buffered(), len(c.p)-c.n))
	c.copied = copy(c.p[c.n:], next)
	return c.copied > 0
}

// discard passes over n bytes of the buffer, which are there.
func discard(raw *unpack.Raw, n int) { _, _ = raw.Buffer().Discard(n) }
