package format

import "io"

// cutter reads members as they are in the file. If a member's end can't be determined, it ends with
// the file: a decoder of these bytes finds the same damage as in the file.
type cutter struct {
	walk Walk
	in   bool  // there is a current member
	rest bool  // its end can't be determined
	err  error // of next
}

// next moves to the next member. It skips the rest of the previous one.
func (c *cutter) next() (rawOffset int64, err error) {
	if c.err == nil && c.in {
		_, c.err = io.Copy(io.Discard, c)
	}
	if c.err == nil {
		rawOffset, c.err = c.walk.Next()
		c.in, c.rest = c.err == nil, false
	}
	return rawOffset, c.err
}

// Read returns io.EOF at the member's end. Other errors are read errors.
func (c *cutter) Read(p []byte) (n int, err error) {
	raw := c.walk.Raw()
	switch {
	case !c.in:
		return 0, io.EOF
	case c.rest:
		n, err = raw.Buffer().Read(p)
	default:
		n, err = c.walk.Read(p)
		c.rest = err != nil && err != io.EOF
	}
	switch {
	case raw.Failure() != nil && err != nil:
		return n, raw.Failure()
	case err == io.EOF:
		c.in = false
		return n, err
	}
	return n, nil
}
