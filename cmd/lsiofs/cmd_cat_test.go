package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

func TestSlicesAreWrittenCompletely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slices := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 5000), 0, 64).Draw(t, "slices")
		want := bytes.Join(slices, nil)

		var plain bytes.Buffer
		require.NoError(t, newSliceWriter(&plain).write(slices))
		require.Equal(t, string(want), plain.String())

		// A pipe takes 64 KiB at a time, so writev writes only a part.
		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer r.Close()
		done := make(chan error, 1)
		go func() {
			err := newSliceWriter(w).write(slices)
			done <- errors.Join(err, w.Close())
		}()
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, <-done)
		require.Equal(t, string(want), string(got))
	})
}

func TestWriteEndsQuietlyAfterReaderCloses(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	defer w.Close()
	err = newSliceWriter(w).write([][]byte{[]byte("x")})
	require.Equal(t, exit.Pipe, exit.CodeOf(err))
	require.Empty(t, err.Error(), "nothing is printed")
}

func TestAdvanceDropsWrittenBytes(t *testing.T) {
	s := func(text ...string) (out [][]byte) {
		for _, x := range text {
			out = append(out, []byte(x))
		}
		return out
	}
	require.Equal(t, s("c", "de"), advance(s("ab", "c", "de"), 2))
	require.Equal(t, s("b", "c"), advance(s("", "ab", "c"), 1))
	require.Empty(t, advance(s("ab", ""), 2))
}
