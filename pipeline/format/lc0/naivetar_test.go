package lc0_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
)

// naiveTar returns what is kept of an intact tar of games, using the standard library: the sizes of
// its records.
func naiveTar(t require.TestingT, raw []byte) (games []int, records []int64, refused bool) {
	versions := map[string]bool{}
	archive := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return games, records, len(versions) > 1
		}
		require.NoError(t, err)
		if h.Typeflag != tar.TypeReg || !strings.HasSuffix(h.Name, ".gz") || strings.HasSuffix("/"+h.Name, "/.gz") {
			continue
		}
		member, err := io.ReadAll(archive)
		require.NoError(t, err)
		if len(member) > 3 && member[3]>>5 != 0 {
			continue // RFC 1952: reserved flags are an error, which the standard library ignores
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(member))
		if err != nil {
			continue
		}
		decoded, err := io.ReadAll(unzipped)
		if err != nil {
			continue
		}
		if o := naive(decoded, false); !o.Damaged {
			versions[o.Kind] = true
			games = append(games, len(o.Records))
			for _, r := range o.Records {
				records = append(records, r.SizeBytes)
			}
		}
	}
}

// Results for tars of games and of other files, some damaged, agree with an independent parser.
func TestRandomTarsOfGamesMatchNaiveParser(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var files []file
		for i := range rapid.IntRange(0, 6).Draw(t, "files") {
			name := rapid.SampledFrom([]string{"%d.gz", "a/training.%d.gz", "%d.txt", "b%d/.gz", "LICENSE%d"}).Draw(t, "name")
			packed := gz(drawGame(t))
			switch at := rapid.IntRange(0, len(packed)-1).Draw(t, "at"); rapid.SampledFrom([]string{"", "", "", "flip", "cut", "twice"}).Draw(t, "what") {
			case "flip":
				packed[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			case "cut":
				packed = packed[:at]
			case "twice":
				packed = append(packed, packed...)
			}
			files = append(files, file{fmt.Sprintf(name, i), packed})
		}
		raw := tarOf(t, files...)
		games, want, refused := naiveTar(t, raw)
		s := scan(lc0.Format{}, lc0.Tar{}, raw)
		if refused {
			var r *format.RefusedError
			require.ErrorAs(t, s.err, &r)
			return
		}
		require.NoError(t, s.err)
		require.Nil(t, s.Damage)
		require.Len(t, s.Members, len(games))
		var got []int64
		for _, r := range s.records {
			got = append(got, r.SizeBytes)
		}
		require.Equal(t, want, got)
		bytesOf(t, lc0.Tar{}, raw, s)
	})
}
