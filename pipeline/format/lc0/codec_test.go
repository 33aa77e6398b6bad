package lc0_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
)

func TestTarredGamesAreReturnedOneByOneFromAnyReader(t *testing.T) {
	games := [][]byte{game(6, 0, 2), game(6, 7, 1), game(6, 9, 3)}
	raw := tarOf(t, file{"1.gz", gz(games[0])}, file{"text", make([]byte, 700)}, file{"2.gz", gz(games[1])}, file{"3.gz", gz(games[2])})
	for _, r := range []io.Reader{bytes.NewReader(raw), iotest.OneByteReader(bytes.NewReader(raw)), iotest.HalfReader(bytes.NewReader(raw)), iotest.DataErrReader(bytes.NewReader(raw))} {
		d, err := lc0.Tar{}.NewPartDecoder(r, 1000)
		require.NoError(t, err)
		_, err = d.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err, "before the first game")
		for i, want := range games {
			_, err := d.Next()
			require.NoError(t, err)
			require.Equal(t, string('1'+rune(i))+".gz", d.PartName())
			got, err := io.ReadAll(decoderReader{d})
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		}
		for range 2 {
			_, err = d.Next()
			require.Equal(t, io.EOF, err)
		}
		require.Positive(t, d.MemoryBytes())
		d.Close()
		d.Close()
		_, err = d.Next()
		require.ErrorContains(t, err, "closed")
		_, err = d.Read(make([]byte, 1))
		require.ErrorContains(t, err, "closed")
	}
}

func TestUnreadGamesAreSkipped(t *testing.T) {
	raw := tarOf(t, file{"1.gz", gz(game(6, 0, 40))}, file{"2.gz", []byte("damaged")}, file{"3.gz", gz(game(6, 0, 1))})
	d, err := lc0.Tar{}.NewPartDecoder(bytes.NewReader(raw), 0)
	require.NoError(t, err)
	defer d.Close()
	for i := range 3 {
		_, err := d.Next()
		require.NoError(t, err)
		if i == 0 {
			_, err = d.Read(make([]byte, 100))
			require.NoError(t, err)
		}
	}
	_, err = d.Next()
	require.Equal(t, io.EOF, err)
}

func TestHugelyExpandingGameUsesNoMoreMemory(t *testing.T) {
	size := 64 << 20
	if testing.Short() {
		size = 8 << 20
	}
	bomb := gz(append(frame(6, 1), make([]byte, size)...))
	s := scan(lc0.Format{}, lc0.Game{}, bomb)
	require.Len(t, s.Lost().First, 1, "half a frame is left")
	d, err := lc0.Game{}.NewPartDecoder(bytes.NewReader(bomb), 0)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Next()
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, decoderReader{d})
	require.NoError(t, err)
	require.Less(t, d.MemoryBytes(), int64(1<<20))
}

// FuzzTar scans arbitrary bytes as a tar of games: it must not panic, and each game that is kept
// can be entered independently.
func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, file{"1.gz", gz(game(6, 0, 1))}, file{"2.gz", gz(nil)}, file{"3.gz", gz(game(6, 0, 2))}))
	f.Add(tarOf(f, file{"1.gz", gz(game(3, 0, 1), game(3, 1, 1))}, file{"2.gz", []byte("text")}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := scan(lc0.Format{}, lc0.Tar{}, raw)
		if s.err == nil && len(raw) > 0 {
			require.Zero(t, len(bytesOf(t, lc0.Tar{}, raw, s))%max(1, sizeOf(s)))
		}
		_, err := lc0.Format{}.SniffRaw(bytes.NewReader(raw), int64(len(raw)))
		require.NoError(t, err)
	})
}

// FuzzGame scans arbitrary bytes as a game, with and without the check.
func FuzzGame(f *testing.F) {
	f.Add(game(6, 0, 2))
	f.Add(game(4, 0, 1))
	f.Fuzz(func(t *testing.T, decoded []byte) {
		raw := gz(decoded)
		s := scan(lc0.Format{}, lc0.Game{}, raw)
		want := naive(decoded, false)
		require.Equal(t, want.Damaged, len(s.Lost().First) > 0)
		require.Len(t, s.records, len(want.Records))
		lc0.Format{}.Sniff(decoded)
	})
}

func sizeOf(s scanned) int {
	if len(s.records) == 0 {
		return 1
	}
	return int(s.records[0].SizeBytes)
}

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
