package lc0_test

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

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
