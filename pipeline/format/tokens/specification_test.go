package tokens_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// question is a shard and what describes it; the characters of Idx and Ends are bytes.
type question struct {
	Bytes        int
	Dtype        string
	Header, Pack int
	Labels       bool
	Idx, Ends    *string
}

const program = `
def answer(q):
    text = lambda s: None if s is None else s.encode("latin-1")
    found, end = [], "whole"
    try:
        for r in tokens(bytes(q["Bytes"]), None, q["Dtype"], q["Header"], q["Pack"], int(q["Labels"]), text(q["Idx"]), text(q["Ends"])):
            found.append([r.begin, len(r.data)])
    except Corrupt:
        end = "corrupt"
    except Refused:
        return ["refused", []]
    return [end, found]
`

func drawQuestion(dice *rand.Rand) question {
	q := question{Dtype: []string{"u2", "u4", "i8", ""}[dice.IntN(4)], Pack: dice.IntN(5), Labels: dice.IntN(2) == 0}
	lengths, sum, width := make([]int, dice.IntN(5)), 0, 2
	for i := range lengths {
		lengths[i] = dice.IntN(6)
		sum += lengths[i]
	}
	var description []byte
	switch dice.IntN(3) {
	case 0:
		width = []int{1, 4}[dice.IntN(2)]
		description = idx(map[int]byte{1: 1, 4: 7}[width], width, lengths...)
		if dice.IntN(3) > 0 {
			q.Dtype = ""
		}
	case 1:
		at := uint64(0)
		description = []byte{}
		for _, n := range lengths {
			at += uint64(n)
			description = append(description, ends(at)...)
		}
		if q.Dtype != "" {
			width = int(q.Dtype[1] - '0')
		}
	default:
		q.Header = dice.IntN(2) * dice.IntN(20)
	}
	q.Bytes = sum * width
	if dice.IntN(4) == 0 {
		q.Bytes += dice.IntN(9)
	}
	if n := len(description); n > 0 && dice.IntN(4) == 0 {
		description[dice.IntN(n)] ^= 1 << dice.IntN(8)
		description = description[:n-dice.IntN(2)]
	}
	if description != nil {
		text := latin1(description)
		if width == 2 || q.Dtype != "" && !bytes.HasPrefix(description, []byte("MM")) {
			q.Ends = &text
		} else {
			q.Idx = &text
		}
	}
	return q
}

func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func bytesOf(text string) (b []byte) {
	for _, r := range text {
		b = append(b, byte(r))
	}
	return b
}

func TestRecordsAreThoseOfThePage(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 6))
	var questions []question
	for range 2000 {
		questions = append(questions, drawQuestion(dice))
	}
	ends := map[string]int{}
	for i, want := range formattest.Specified[question, [2]any](t, program, questions) {
		q := questions[i]
		s := spec.Format{HeaderBytes: int64(q.Header), Rows: spec.Rows{Dtype: q.Dtype}}
		if q.Pack > 0 {
			s.Rows.Pack = string(rune('0' + q.Pack))
			if q.Labels {
				s.Rows.Pack += "+1"
			}
		}
		f := format.Format(newFormat(t, s))
		switch {
		case q.Idx != nil:
			f = with(f.(format.Paired), "a.idx", bytesOf(*q.Idx))
		case q.Ends != nil:
			f = with(f.(format.Paired), "a.ds.index", bytesOf(*q.Ends))
		}
		end, found := "whole", []any{}
		sum, err := format.Scan(context.Background(), f, nil, bytes.NewReader(make([]byte, q.Bytes)), int64(q.Bytes), func(e format.Extent) error {
			found = append(found, []any{float64(e.OffsetBytes), float64(e.SizeBytes)})
			return nil
		}, func() {})
		switch {
		case err != nil:
			require.ErrorAs(t, err, new(*format.RefusedError))
			end, found = "refused", []any{}
		case sum.Damage != nil:
			end = "corrupt"
		}
		require.Equal(t, want, [2]any{end, found}, "%+v", q)
		ends[end]++
	}
	require.Len(t, ends, 3)
}
