package npy_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
)

// For each header NumPy prints the rows and the bytes of a row, or that it can't read it.
const readHeaders = `
import base64, io, sys
import numpy as np
from numpy.lib import format
for line in sys.stdin:
    f = io.BytesIO(base64.b64decode(line))
    try:
        read = getattr(format, "read_array_header_1_0") if format.read_magic(f) == (1, 0) else lambda f: format._read_array_header(f, (f.getvalue()[6], 0))
        shape, fortran, dtype = read(f)
        print(shape[0], int(np.prod(shape[1:], dtype=object)) * dtype.itemsize if shape[0] else 0, f.tell())
    except Exception as e:
        print("no:", type(e).__name__, str(e).split("\n")[0][:100])
`

func TestNumPyReadsEveryAcceptedHeaderAlike(t *testing.T) {
	var base [][]byte
	for _, g := range goldens(t) {
		base = append(base, g.bytes)
	}
	slices.SortFunc(base, bytes.Compare)
	r := rand.New(rand.NewPCG(1, 2))
	var shards [][]byte
	var lines bytes.Buffer
	for range 20000 {
		b := bytes.Clone(base[r.IntN(len(base))])
		end := bytes.IndexByte(b, '}')
		for range 1 + r.IntN(2) {
			at := 10 + r.IntN(end-10)
			switch r.IntN(4) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1: // another byte of the same header
				b[at] = b[10+r.IntN(end-10)]
			case 2:
				const others = "0123456789<>|=bBiufcmMSUV[](){}'\", TrueFalse\\L#-_"
				b[at] = others[r.IntN(len(others))]
			default: // swapped, which preserves the length before it
				b[at], b[at+1] = b[at+1], b[at]
			}
		}
		shards = append(shards, b)
		fmt.Fprintln(&lines, base64.StdEncoding.EncodeToString(b))
	}
	read := 0
	answers := strings.Split(formattest.NumPy(t, "", readHeaders, lines.Bytes()), "\n")
	for i, b := range shards {
		records, s, err := scan(b)
		if err != nil || len(records) == 0 {
			continue
		}
		read++
		var rows, rowBytes, at int64
		_, err = fmt.Sscanf(answers[i], "%d %d %d", &rows, &rowBytes, &at)
		require.NoError(t, err, "%q is read here, and NumPy says %s", b[10:], answers[i])
		require.Equal(t, rowBytes, records[0].SizeBytes, "%q", b)
		require.Equal(t, at, records[0].OffsetBytes)
		if s.Damage == nil {
			require.Equal(t, rows, int64(len(records)))
		}
	}
	require.Greater(t, read, 500)
}

func TestNumPyLoadsStreamsOfEveryKind(t *testing.T) {
	var lines bytes.Buffer
	var want strings.Builder
	for name, g := range goldens(t) {
		if _, is := refused[name]; is || g.Rows == 0 {
			continue
		}
		_, s, err := scan(g.bytes)
		require.NoError(t, err)
		for _, n := range []int{0, 1, g.Rows} {
			data := g.bytes[len(g.bytes)-g.Rows*int(g.RowBytes):][:n*int(g.RowBytes)]
			stream := append(ofKind(t, s.Kind).Prologue(uint64(n)), data...)
			fmt.Fprintln(&lines, base64.StdEncoding.EncodeToString(g.bytes)+" "+base64.StdEncoding.EncodeToString(stream))
			fmt.Fprintln(&want, n)
		}
	}
	require.Equal(t, want.String(), formattest.NumPy(t, "", `
import base64, io, sys
import numpy as np
for line in sys.stdin:
    shard, stream = (np.load(io.BytesIO(base64.b64decode(p))) for p in line.split())
    assert stream.dtype == shard.dtype and stream.shape[1:] == shard.shape[1:]
    assert repr(stream.tolist()) == repr(shard[:len(stream)].tolist())
    print(len(stream))
`, lines.Bytes()))
}
