package lc0_test

import (
	"encoding/hex"
	"math/rand/v2"
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
