package filter

import (
	"archive/tar"
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

type member struct{ name, data string }

func tarOf(t *testing.T, members ...member) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o644}))
		_, err := w.Write([]byte(m.data))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.String()
}

// game is a game of one frame.
func game() string {
	b := make([]byte, synthetic.FrameBytes)
	b[0] = 6
	return gz(string(b))
}

// A tar of games that ends too early is found out while its first games are with the filter.
func TestADamagedTarOfGamesIsLeftOutAlone(t *testing.T) {
	t.Parallel()
	whole := tarOf(t, member{"1.gz", game()}, member{"2.gz", game()}, member{"3.gz", game()})
	w := newWorld(t, map[string]string{"a.tar": whole[:len(whole)-3000], "b.tar": whole})
	c := w.config(ByProcess, upper...)
	c.Format.Name = "lc0"
	_, err := w.run(c)
	require.ErrorContains(t, err, "a.tar: ")
	require.ErrorContains(t, err, "the file ends inside a header")
	c.OnFailed = FailedSkip
	counts, err := w.run(c)
	require.NoError(t, err)
	require.Equal(t, uint64(1), counts.Failed)
	require.Contains(t, w.made(), "b.tar")
	require.Len(t, w.made(), 1)
}
