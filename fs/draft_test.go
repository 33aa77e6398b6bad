package fs

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/checkpoint"
)

var errBad = errors.New("can't become a document")

// noX is a rule that refuses every beginning that contains an x.
func noX(doc []byte) error {
	if bytes.ContainsRune(doc, 'x') {
		return errBad
	}
	return nil
}

// Pieces of a document, written in any order and more than once, form the document as soon as all
// of it is there, and not before.
func TestDraftIsCompleteOnceAllBytesAreWritten(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(rapid.StringMatching(`[a-m]{1,60}`).Draw(t, "doc"))
		d := draft{impossible: noX}
		have := make([]bool, len(doc))
		end := 0
		for i := 0; ; i++ {
			missing := bytes.IndexByte(bytes.Map(func(r rune) rune { return r }, flags(have[:end])), 0) >= 0
			got, err := d.ready()
			switch {
			case end == 0:
				if got != nil || err != nil {
					t.Fatalf("nothing was written: %q, %v", got, err)
				}
			case missing:
				if !errors.Is(err, checkpoint.ErrIncomplete) {
					t.Fatalf("a hole is not seen: %v", err)
				}
			case err != nil || !bytes.Equal(got, doc[:end]):
				t.Fatalf("%q, %v instead of %q", got, err, doc[:end])
			}
			if i == 12 {
				return
			}
			from := rapid.IntRange(0, len(doc)-1).Draw(t, "from")
			to := rapid.IntRange(from, len(doc)).Draw(t, "to")
			if err := d.write(doc[from:to], int64(from)); err != nil {
				t.Fatal(err)
			}
			for j := from; j < to; j++ {
				have[j] = true
				end = max(end, j+1)
			}
		}
	})
}

func flags(have []bool) []byte {
	b := make([]byte, len(have))
	for i, h := range have {
		if h {
			b[i] = 1
		}
	}
	return b
}

func TestDraft(t *testing.T) {
	mountsNothing(t)
	refusal := &checkpoint.Refusal{Reason: "no"}
	t.Run("what is written over an accepted beginning is judged, too", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("abcd"), 0))
		require.NoError(t, d.write([]byte("c"), 2))
		require.Equal(t, errBad, d.write([]byte("x"), 1))
		_, err := d.ready()
		require.Equal(t, errBad, err)
	})
	t.Run("an impossible beginning is refused at once, and for good", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("ab"), 0))
		require.ErrorIs(t, d.write([]byte("x"), 2), errBad)
		require.ErrorIs(t, d.write([]byte("abc"), 0), errBad)
		_, err := d.ready()
		require.ErrorIs(t, err, errBad)
	})
	t.Run("what is impossible is seen when the gap before it is filled", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("x"), 2))
		require.ErrorIs(t, d.write([]byte("ab"), 0), errBad)
	})
	t.Run("truncating to nothing begins anew", func(t *testing.T) {
		d := draft{impossible: noX}
		require.Error(t, d.write([]byte("x"), 0))
		d.truncate(0)
		_, err := d.ready()
		require.ErrorIs(t, err, errEmpty)
		require.NoError(t, d.write(nil, 0))
		_, err = d.ready()
		require.ErrorIs(t, err, errEmpty)
		require.NoError(t, d.write([]byte("abc"), 0))
		got, err := d.ready()
		require.NoError(t, err)
		require.Equal(t, "abc", string(got))
	})
	t.Run("truncating cuts, and never adds", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("abcdef"), 0))
		d.truncate(100)
		d.truncate(4)
		got, err := d.ready()
		require.NoError(t, err)
		require.Equal(t, "abcd", string(got))
	})
	t.Run("a handle that appends writes its document from the start", func(t *testing.T) {
		d := draft{impossible: noX, appends: true}
		require.NoError(t, d.write([]byte("abc"), 517))
		require.NoError(t, d.write([]byte("def"), 520))
		got, err := d.ready()
		require.NoError(t, err)
		require.Equal(t, "abcdef", string(got))
	})
	t.Run("a commit happens once, whatever space follows", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("abc"), 0))
		d.settle(nil)
		got, err := d.ready()
		require.NoError(t, err)
		require.Nil(t, got)
		require.NoError(t, d.write([]byte(" \n"), 3))
		got, err = d.ready()
		require.NoError(t, err)
		require.Nil(t, got)
		require.NoError(t, d.write([]byte("d"), 5))
		got, err = d.ready()
		require.NoError(t, err)
		require.Equal(t, "abc \nd", string(got))
	})
	t.Run("an incomplete document is kept, a refused one is not", func(t *testing.T) {
		d := draft{impossible: noX}
		require.NoError(t, d.write([]byte("abc"), 0))
		d.settle(checkpoint.ErrIncomplete)
		require.NoError(t, d.write([]byte("def"), 3))
		got, err := d.ready()
		require.NoError(t, err)
		require.Equal(t, "abcdef", string(got))
		d.settle(refusal)
		_, err = d.ready()
		require.ErrorIs(t, err, refusal)
		require.Nil(t, d.buf)
	})
	t.Run("many small writes of a large document are judged a few times", func(t *testing.T) {
		judged := 0
		d := draft{impossible: func(doc []byte) error { judged += len(doc); return nil }}
		doc := strings.Repeat("a", 4<<20)
		const piece = 4 << 10
		for off := 0; off < len(doc); off += piece {
			require.NoError(t, d.write([]byte(doc[off:off+piece]), int64(off)))
		}
		require.Less(t, judged, 8*len(doc))
		require.Len(t, d.written, 1)
	})
}
