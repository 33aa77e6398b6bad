package format_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
	unpackzstd "github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

// refuses runs the index pass over a file that claims to have size bytes.
func refuses(t *testing.T, size int64) error {
	t.Helper()
	_, err := format.Scan(context.Background(), lines.Lines(), nil, bytes.NewReader(nil), size, func(format.Extent) error { return nil }, func() {})
	var refused *format.RefusedError
	require.ErrorAs(t, err, &refused)
	return err
}

func TestFileOfNearlyMaximumSizeIsRefusedUnread(t *testing.T) {
	require.ErrorContains(t, refuses(t, format.MaxShardBytes+1), "72057594037927937 bytes")
	require.ErrorContains(t, refuses(t, 1<<63-1), "9223372036854775807 bytes")
}

// TestACompressedShardThatNeverEndsIsRefused begins to read shortly before the limit, as if
// everything before had been decoded.
func TestACompressedShardThatNeverEndsIsRefused(t *testing.T) {
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer w.Close()
	frame := w.EncodeAll(make([]byte, 1<<20), nil)
	d, err := format.NewDecoded(unpackzstd.Codec{}, bytes.NewReader(frame), int64(len(frame)), format.Entry{DecodedBytes: format.MaxDecodedBytes - 5000})
	require.NoError(t, err)
	defer d.Close()
	n, err := io.Copy(io.Discard, d)
	var refused *format.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Less(t, n, int64(1<<20))
	_, again := d.Read(make([]byte, 10))
	require.Equal(t, err, again)

	d, err = format.NewDecoded(unpackzstd.Codec{}, bytes.NewReader(frame), int64(len(frame)), format.Entry{DecodedBytes: format.MaxDecodedBytes - 1<<20})
	require.NoError(t, err)
	defer d.Close()
	n, err = io.Copy(io.Discard, d)
	require.NoError(t, err, "one that ends at the limit")
	require.Equal(t, int64(1<<20), n)
}
