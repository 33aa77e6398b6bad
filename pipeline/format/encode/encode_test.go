package encode

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/format/lz4"
	"github.com/lsiofs/lsiofs/pipeline/format/zstd"
)

// The codec reads what was written, and it can be entered between units.
func TestCodecsReadTheirOwnOutput(t *testing.T) {
	unit := make([]byte, 1<<20)
	r := rand.NewChaCha8([32]byte{})
	for name, codec := range map[string]format.Codec{"plain": nil, "gzip": gzip.Codec{}, "zstd": zstd.Codec{}, "lz4": lz4.Codec{}, "game": lc0.Game{}} {
		for _, units := range []int{0, 1, 3, 9, 12} {
			var file, want bytes.Buffer
			w, err := New(codec, &file)
			require.NoError(t, err)
			for range units {
				_, _ = r.Read(unit[:len(unit)/4])
				want.Write(unit)
				_, err := w.Write(unit[:700])
				require.NoError(t, err)
				_, err = w.Write(unit[700:])
				require.NoError(t, err)
				require.NoError(t, w.EndUnit())
			}
			require.NoError(t, w.Close())
			if codec == nil {
				require.Equal(t, want.Bytes(), file.Bytes())
				continue
			}
			d, err := format.NewDecoded(codec, bytes.NewReader(file.Bytes()), int64(file.Len()), format.Entry{})
			require.NoError(t, err)
			got, err := io.ReadAll(d)
			d.Close()
			require.NoError(t, err, "%s, %d units", name, units)
			require.True(t, bytes.Equal(want.Bytes(), got), "%s, %d units", name, units)
			if name == "game" {
				continue // all members are one part
			}
			members, err := codec.NewDecoder(bytes.NewReader(file.Bytes()), 0)
			require.NoError(t, err)
			n := 0
			for ; ; n++ {
				if _, err := members.Next(); err == io.EOF {
					break
				} else {
					require.NoError(t, err)
				}
			}
			members.Close()
			require.Equal(t, max(1, (units*len(unit)+MemberBytes-1)/MemberBytes), n, "%s, %d units", name, units)
		}
	}
}

func TestOtherCodecsAreRefused(t *testing.T) {
	_, err := New(other{gzip.Codec{}}, io.Discard)
	require.ErrorContains(t, err, "nothing writes other")
}

type other struct{ format.Codec }

func (other) Name() string { return "other" }
