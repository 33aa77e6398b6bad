package lc0_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
)

func TestTensorsAreThoseOfThePage(t *testing.T) {
	type question struct {
		Frame, Element string
		bytes          []byte
	}
	dice := rand.New(rand.NewPCG(7, 8))
	var questions []question
	for version := uint32(3); version <= 7; version++ {
		for _, format := range []uint32{1, 2, 3, 4, 5, 132, 133} {
			frame := randomFrame(dice, version, format)
			for _, element := range []string{"u1", "f2", "f4"} {
				questions = append(questions, question{hex.EncodeToString(frame), element, frame})
			}
		}
	}
	program := `answer = lambda q: [tensor_descr(q["Element"]), tensors(bytes.fromhex(q["Frame"]), q["Element"]).hex()]`
	for i, want := range formattest.Specified[question, [2]string](t, program, questions) {
		p, err := lc0.NewTensors(lc0.Element(questions[i].Element))
		require.NoError(t, err)
		row := make([]byte, p.RowBytes())
		require.NoError(t, p.Present(row, questions[i].bytes))
		require.Equal(t, want[0], p.Descr())
		require.Equal(t, want[1], hex.EncodeToString(row), "element %s of version %d", questions[i].Element, questions[i].bytes[0])
	}
}

func TestGamesOfOtherProgramsAreRead(t *testing.T) {
	g := game(6, 0, 40) // more than a block of pigz
	for _, c := range [][]string{{"gzip", "-9"}, {"gzip", "-1"}, {"pigz", "-c"}, {"pigz", "-c", "-i", "-b", "128"}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			raw := formattest.Program(t, "", g, c[0], append(c[1:], "-")...)
			if c[0] == "gzip" {
				raw = formattest.Program(t, "", g, "gzip", c[1], "-c")
			}
			s := scan(lc0.Format{}, lc0.Game{}, raw)
			require.NoError(t, s.err)
			require.Len(t, s.records, 40)
			require.True(t, bytes.Equal(g, bytesOf(t, lc0.Game{}, raw, s)))
		})
	}
}

const pythonTar = `
import sys, tarfile
kind = getattr(tarfile, sys.argv[1])
with tarfile.open("out.tar", "w", format=kind) as t:
    for name in sys.argv[2:]:
        t.add(name)
`

func TestTarsOfOtherProgramsAreRead(t *testing.T) {
	long := "a-long-directory-of-an-event/" + string(bytes.Repeat([]byte("x"), 120)) + "/training.3.gz"
	games := map[string][]byte{"run/training.1.gz": game(6, 0, 3), "run/training.2.gz": game(6, 50, 1), "run/" + long: game(6, 90, 2)}
	names := []string{"run/training.1.gz", "run/training.2.gz", "run/" + long}
	var want []byte
	for _, c := range [][]string{
		{"tar", "--format=gnu", "-cf"}, {"tar", "--format=pax", "-cf"}, {"bsdtar", "--format=ustar", "-cf"}, {"bsdtar", "--format=pax", "-cf"},
		{"python3", "GNU_FORMAT"}, {"python3", "PAX_FORMAT"},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			dir := t.TempDir()
			want = want[:0]
			for _, name := range names {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), gz(games[name]), 0o644))
				want = append(want, games[name]...)
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "run/README.txt"), []byte("text"), 0o644))
			members := append([]string{"run/README.txt"}, names...)
			if c[0] == "python3" {
				formattest.Program(t, dir, nil, "python3", append([]string{"-c", pythonTar, c[1]}, members...)...)
			} else {
				formattest.Program(t, dir, nil, c[0], append(append(c[1:], "out.tar"), members...)...)
			}
			raw, err := os.ReadFile(filepath.Join(dir, "out.tar"))
			require.NoError(t, err)
			s := scan(lc0.Format{}, lc0.Tar{}, raw)
			require.NoError(t, s.err)
			require.Empty(t, s.Lost().First)
			require.Len(t, s.records, 6)
			require.True(t, bytes.Equal(want, bytesOf(t, lc0.Tar{}, raw, s)), "entered at each game")
			is, err := lc0.Format{}.SniffRaw(bytes.NewReader(raw), int64(len(raw)))
			require.NoError(t, err)
			require.True(t, is)
		})
	}
}
