package unpack

import "io"

// cutter reads members as they are in the file. Where a member's end can't be
// told, that is the file's: whoever decodes these bytes finds the same damage as
// in the file.
type cutter struct {
	walk Walk
	in   bool  // a member is at hand
	rest bool  // its end can't be told
	err  error // of next
}

// next goes on to the member that follows. It passes over what is left of the one
// before.
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

// Read gives io.EOF at the member's end. Other errors are those of reading.
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
