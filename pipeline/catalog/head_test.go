package catalog

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// bytesReader is a reader that counts the bytes read.
type bytesReader struct {
	io.ReaderAt
	read int
}

func (r *bytesReader) ReadAt(p []byte, off int64) (n int, err error) {
	n, err = r.ReaderAt.ReadAt(p, off)
	r.read += n
	return n, err
}

func (*bytesReader) Close() {}

// The bytes of the head are not read twice by a scan from the beginning, and are freed once the
// scan has passed them.
func TestHeadIsRetainedUntilRead(t *testing.T) {
	const size, looked = 1 << 20, 700 << 10
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, size)
	_, _ = random.Read(data) // it never fails
	under := &bytesReader{ReaderAt: bytes.NewReader(data)}
	h := &headReader{reader: under, sizeBytes: size, growing: true}
	part := make([]byte, 100<<10)
	check := func(off int64) {
		t.Helper()
		n, err := h.ReadAt(part, off)
		require.True(t, err == nil || err == io.EOF && off+int64(n) == size, err)
		require.Equal(t, data[off:off+int64(n)], part[:n])
	}
	check(looked - int64(len(part)))
	require.Len(t, h.head, looked)
	h.growing = false
	for off := int64(0); off < size; off += int64(len(part)) {
		require.Equal(t, off <= looked, len(h.head) == looked, off)
		check(off)
	}
	require.Equal(t, size, under.read, "each byte once")
	require.Equal(t, format.SniffBytes, cap(h.head))
	check(0)
	check(format.SniffBytes - 10)
}
