package cat

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// sliceWriter writes vectors of slices: to a file with writev, without copying, otherwise slice by
// slice. It is not safe for concurrent use.
type sliceWriter struct {
	out  io.Writer
	conn syscall.RawConn // nil: out is not a file
	rest [][]byte        // reused
}

func newSliceWriter(out io.Writer) *sliceWriter {
	w := &sliceWriter{out: out}
	if f, ok := out.(*os.File); ok {
		// An error means a closed file, which the first write reports.
		w.conn, _ = f.SyscallConn()
	}
	return w
}

// write writes all slices. If the reader has gone away, the error has the code exit.Pipe.
func (w *sliceWriter) write(slices [][]byte) error {
	var err error
	if w.conn == nil {
		for _, s := range slices {
			if _, err = w.out.Write(s); err != nil {
				break
			}
		}
	} else {
		err = w.writev(slices)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE):
		return exit.With(exit.Pipe, exit.ErrSilent)
	}
	return fmt.Errorf("write to stdout: %w", err)
}

func (w *sliceWriter) writev(slices [][]byte) error {
	w.rest = append(w.rest[:0], slices...)
	rest := w.rest
	for len(rest) > 0 {
		var n int
		var werr error
		err := w.conn.Write(func(fd uintptr) bool {
			n, werr = unix.Writev(int(fd), rest)
			return werr != unix.EAGAIN // wait until it is writable
		})
		if err != nil {
			return err
		}
		if werr == unix.EINTR {
			continue
		}
		if werr != nil {
			return werr
		}
		rest = advance(rest, n)
	}
	return nil
}

// advance drops the first n bytes and the slices that are then empty.
func advance(slices [][]byte, n int) [][]byte {
	for len(slices) > 0 && n >= len(slices[0]) {
		n -= len(slices[0])
		slices = slices[1:]
	}
	if n > 0 {
		slices[0] = slices[0][n:]
	}
	return slices
}
