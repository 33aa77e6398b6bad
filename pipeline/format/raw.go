package format

import (
	"bufio"
	"io"
)

// rawBufferBytes is how much of a compressed shard is read at a time: enough to make the cost of a
// read small compared with that of decoding the bytes.
const rawBufferBytes = 256 << 10

// Raw reads a shard's raw bytes forward for a Decoder. It buffers in reads of 256 KiB, counts
// bytes, and keeps storage failures separate from damage. The zero value is ready for Reset. It is
// not safe for concurrent use.
type Raw struct {
	buffer *bufio.Reader
	from   countedReader
}

// Reset makes r read src, whose first byte is at offset offsetBytes of the file.
func (r *Raw) Reset(src io.Reader, offsetBytes int64) {
	r.from = countedReader{src: src, next: offsetBytes}
	if r.buffer == nil {
		r.buffer = bufio.NewReaderSize(&r.from, rawBufferBytes)
		return
	}
	r.buffer.Reset(&r.from)
}

// Release drops the reader passed to Reset and keeps the buffer.
func (r *Raw) Release() { r.Reset(eof{}, 0) }

// Buffer returns the buffered input.
func (r *Raw) Buffer() *bufio.Reader { return r.buffer }

// OffsetBytes returns the offset in the file of the next byte of Buffer.
func (r *Raw) OffsetBytes() int64 { return r.from.next - int64(r.buffer.Buffered()) }

// ReadPart reads into p from the next *left bytes, and subtracts the number of bytes read from
// *left. If the file ends before them, it returns io.ErrUnexpectedEOF.
func (r *Raw) ReadPart(p []byte, left *int64) (int, error) {
	n, err := r.buffer.Read(p[:min(int64(len(p)), *left)])
	*left -= int64(n)
	switch {
	case err != io.EOF:
		return n, err
	case n == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// Skip skips n bytes. It returns Failure if reading failed, and io.ErrUnexpectedEOF if the file
// ends before.
func (r *Raw) Skip(n int64) error {
	if _, err := io.CopyN(io.Discard, r.buffer, n); err != nil {
		if r.Failure() != nil {
			return r.Failure()
		}
		return io.ErrUnexpectedEOF
	}
	return nil
}

// Failure returns the error with which reading failed, or nil; io.EOF is not a failure. Callers
// must check it before they treat missing bytes as damage.
func (r *Raw) Failure() error { return r.from.failure }

// MemoryBytes returns the size of the buffer.
func (r *Raw) MemoryBytes() int64 { return rawBufferBytes }

// countedReader counts the bytes from src, and makes its failures sticky, which bufio does not.
type countedReader struct {
	src     io.Reader
	next    int64
	failure error
}

func (c *countedReader) Read(p []byte) (int, error) {
	if c.failure != nil {
		return 0, c.failure
	}
	n, err := c.src.Read(p)
	c.next += int64(n)
	if err != nil && err != io.EOF {
		c.failure = err
	}
	return n, err
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
