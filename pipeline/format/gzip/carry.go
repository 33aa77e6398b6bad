package gzip

import (
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/inflate"
)

// carryBytes is enough for what is left of one storage read, too little to be decoded, and for as
// much of the next one as is needed to decode it.
const carryBytes = 2 * inflate.MinInput

// carry joins storage reads: the buffer is used up before it is filled again, so that all reads
// except the last have its size.
//
//	p:  n bytes that have left the buffer | copied bytes, which are still in it
type carry struct {
	p         [carryBytes]byte
	n, copied int
}

// input returns the bytes to decode.
func (c *carry) input(raw *format.Raw) []byte {
	if c.n > 0 {
		return c.p[:c.n+c.copied]
	}
	in, _ := raw.Buffer().Peek(raw.Buffer().Buffered()) // that many are buffered
	return in
}

// use consumes the first bytes of input.
func (c *carry) use(raw *format.Raw, used int) {
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

// more adds bytes to input when none of it could be used. It reports whether there are any.
func (c *carry) more(raw *format.Raw) bool {
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

// discard discards n bytes of the buffer, which must be there.
func discard(raw *format.Raw, n int) { _, _ = raw.Buffer().Discard(n) }
