package lc0_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
)

func TestSniff(t *testing.T) {
	require.True(t, lc0.Format{}.Sniff(game(7, 0, 3)))
	require.True(t, lc0.Format{}.Sniff(game(6, 0, 10)[:format.SniffBytes]))
	require.False(t, lc0.Format{}.Sniff(game(6, 0, 1)[:8000]))
	require.False(t, lc0.Format{}.Sniff(nil))
	require.False(t, lc0.Format{}.Sniff(make([]byte, 20000)))
	require.False(t, lc0.Format{}.Sniff(append(game(6, 0, 1), game(5, 0, 1)...)))
}

func TestTarIsRecognizedByOneOfItsFirstGames(t *testing.T) {
	g := gz(game(6, 0, 2))
	behind := func(n int, damaged []byte) []byte {
		var files []file
		for i := range n {
			files = append(files, file{fmt.Sprintf("%d.gz", i), damaged})
		}
		return tarOf(t, append(files, file{"sound.gz", g})...)
	}
	large := make([]byte, 5<<20) // incompressible
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	late := append(make([]byte, 0), bytes.Repeat([]byte("x"), lc0.SniffTarBytes)...)
	for name, c := range map[string]struct {
		raw  []byte
		want bool
	}{
		"a game":                      {tarOf(t, file{"dir/", nil}, file{"README", []byte("text")}, file{"dir/1.gz", g}), true},
		"text that is compressed":     {tarOf(t, file{"1.json.gz", gz([]byte("{}"))}, file{"2.gz", g}), true},
		"behind an empty game":        {behind(1, nil), true},
		"behind zeros":                {behind(1, make([]byte, 5000)), true},
		"behind one that is cut off":  {behind(1, g[:len(g)/2]), true},
		"behind a page":               {behind(1, []byte("<!DOCTYPE html>")), true},
		"behind 15 that are damaged":  {behind(15, g[:8]), true},
		"behind 16 that are damaged":  {behind(16, g[:8]), false},
		"behind MiBs of another":      {behind(1, large), false},
		"images":                      {tarOf(t, file{"1.jpg", []byte("x")}), false},
		"a game that is cut off":      {tarOf(t, file{"1.gz", g[:len(g)-9]}), false},
		"a game of half a frame more": {tarOf(t, file{"1.gz", gz(game(6, 0, 2)[:12000])}), false},
		"a game far behind":           {tarOf(t, file{"1.txt", late}, file{"2.gz", g}), false},
		"nothing":                     {tarOf(t), false},
		"no tar":                      {[]byte("text"), false},
	} {
		is, err := lc0.Format{}.SniffRaw(bytes.NewReader(c.raw), int64(len(c.raw)))
		require.NoError(t, err, name)
		require.Equal(t, c.want, is, name)
	}
}
