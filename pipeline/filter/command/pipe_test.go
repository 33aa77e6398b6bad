package command

import (
	"bytes"
	"io"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// A reader that is delayed for longer than the pipes of an ended program may stay open still gets
// their contents, and their end.
func TestPipeContentsAreReadEvenIfLate(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 6000)
	for _, held := range []bool{false, true} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.Write(want)
		require.NoError(t, err)
		if !held {
			require.NoError(t, w.Close())
		}
		require.NoError(t, r.SetReadDeadline(time.Now()))
		p := &Pipe{file: r}
		got, err := io.ReadAll(iotest.OneByteReader(p))
		require.True(t, bytes.Equal(want, got), "%d bytes", len(got))
		if held {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			_, err = w.Write(want)
			require.NoError(t, err)
			_, err = p.Read(make([]byte, 10))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "one who writes for ever is not waited for")
			require.NoError(t, w.Close())
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, p.Close())
		_, err = p.Read(make([]byte, 10))
		require.ErrorIs(t, err, os.ErrClosed)
	}
}
