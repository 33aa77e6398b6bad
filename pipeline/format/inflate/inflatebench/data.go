package inflatebench

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// Row is a kind of data from which a gzip file is made.
type Row struct {
	Name    string
	AtLeast float64 // required speed relative to the other library
	make    func() ([]byte, error)
}

// Rows returns all rows. Each makes at most 8 MB, which fits the caches in part, like a shard that
// is being read.
func Rows() []Row {
	return []Row{
		{"JSONL of words", 2.2, shards(synthetic.Shape{Format: "jsonl", RecordBytes: 1200}, 7000)},
		{"source as JSONL", 2.3, func() ([]byte, error) { return source(8 << 20), nil }},
		{"chess frames", 2.0, games},
		{"tar of compressed images", 1.9, shards(synthetic.Shape{Format: "tar", RecordBytes: 12500}, 650)},
	}
}

// File makes the row's data and one gzip member from it, as the program gzip does by default.
func (r Row) File() (decoded, file []byte, err error) {
	if decoded, err = r.make(); err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, 6)
	if err == nil {
		_, err = w.Write(decoded)
	}
	if err == nil {
		err = w.Close()
	}
	return decoded, b.Bytes(), err
}

func shards(shape synthetic.Shape, records uint64) func() ([]byte, error) {
	return func() ([]byte, error) {
		var b bytes.Buffer
		err := shape.WriteShard(&b, 0, records, func(int64) {})
		return b.Bytes(), err
	}
}

// games returns frames of lc0, decoded.
func games() ([]byte, error) {
	packed, err := shards(synthetic.Shape{Format: "lc0", RecordBytes: synthetic.FrameBytes, Codec: "gz"}, 1000)()
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(r)
	return b.Bytes(), err
}

// source returns text like that of programs, in JSON lines of about 1.2 KB: few words and shapes of
// lines, most of which soon repeat.
func source(size int) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	names := make([]string, 3000)
	for i := range names {
		for range 1 + r.IntN(3) {
			for k := range 2 + r.IntN(5) {
				c := "etaoinshrdlucmfwypvbgk"[min(r.IntN(22), r.IntN(22))]
				if k == 0 {
					c -= 'a' - 'A'
				}
				names[i] += string(c)
			}
		}
	}
	shapes := []string{
		"if err := %s.%s(%s); err != nil {\n\t\treturn err\n\t}\n", "%s, err := %s.%s(ctx)\n", "for _, %s := range %s {\n",
		"return %s.%s, nil\n", "// %s is what %s has of a %s.\n", "func (s *%s) %s(p []byte) (int, error) {\n", "}\n\n", "}\n", "case %s:\n",
		"%s[%s] = %s\n", "require.Equal(t, %s, %s)\n", "%s := make([]byte, %s)\n", "switch %s.%s {\n", "type %s struct {\n",
	}
	var recent []string
	line := func() string {
		if len(recent) > 50 && r.IntN(10) < 4 {
			return recent[len(recent)-1-r.IntN(50)]
		}
		shape := shapes[r.IntN(len(shapes))]
		var words []any
		for i := range bytes.Count([]byte(shape), []byte("%s")) {
			k := int(math.Exp(r.Float64()*math.Log(float64(len(names))))) - 1
			words = append(words, names[(k+len(recent)/400*7)%len(names)])
			_ = i
		}
		l := "\t\t\t"[:r.IntN(4)] + fmt.Sprintf(shape, words...)
		recent = append(recent, l)
		return l
	}
	var out []byte
	for n := 0; len(out) < size; n++ {
		var text string
		for len(text) < 1100 {
			text += line()
		}
		out = append(out, `{"id":`...)
		out = strconv.AppendInt(out, int64(n), 10)
		out = append(out, `,"text":`...)
		out = strconv.AppendQuote(out, text)
		out = append(out, "}\n"...)
	}
	return out
}
