package formats_test

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// drawName returns a name that is made of what names mean something by.
func drawName(dice *rand.Rand) string {
	parts := []string{"a", "x1", ".", "-", "07", ".tar", ".TAR", ".jsonl", ".ndjson", ".txt", ".tfrecord", ".tfrec", ".npy", ".gz", ".gzip", ".tgz", ".Tgz",
		".zst", ".zstd", ".tzst", ".lz4", "-00002-of-00010", "-OF-3", "-1-of-", ".c000", ".C7", ".json", "é"}
	var b strings.Builder
	for range 1 + dice.IntN(6) {
		b.WriteString(parts[dice.IntN(len(parts))])
	}
	return b.String()
}

func TestNamesAreReadAsThePagesSay(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	var names []string
	for range 5000 {
		names = append(names, "d.tar/"+drawName(dice))
	}
	for i, want := range formattest.Specified[string, [3]string](t, "answer = parse_name", names) {
		n := formats.ParseName(names[i])
		require.Equal(t, want, [3]string{n.Format, codecName(n.Codec), path.Base(n.Stem)}, names[i])
	}
}

func codecName(c format.Codec) string {
	if c == nil {
		return ""
	}
	return c.Name()
}

func TestTheCodecIsTheOneOfThePages(t *testing.T) {
	type question struct{ Format, Path, Raw string } // the characters of Raw are bytes
	dice := rand.New(rand.NewPCG(3, 4))
	var questions []question
	for range 3000 {
		raw := ""
		for range dice.IntN(3) {
			n := dice.IntN(40)
			raw += "\x50\x2a\x4d\x18" + string([]byte{byte(n), 0, 0, 0}) + strings.Repeat("s", n)
		}
		raw += []string{"", "\x1f", "\x1f\x8b\x08", "\x28\xb5", "\x28\xb5\x2f\xfd", "\x04\x22\x4d\x18", "\x02\x21\x4c\x18", "{}\n", "plain"}[dice.IntN(9)]
		if dice.IntN(10) == 0 { // a TFRecord whose length is the magic number of a codec
			length := "\x1f\x8b\x08\x00\x00\x00\x00\x00"
			sum := crc32.Checksum([]byte(length), crc32.MakeTable(crc32.Castagnoli))
			raw = length + string(binary.LittleEndian.AppendUint32(nil, (sum>>15|sum<<17)+0xa282ead8))
		}
		name := "a" + []string{"", ".zst", ".lz4", ".zstd", ".gz"}[dice.IntN(5)]
		questions = append(questions, question{[]string{"tar", "jsonl", "lines", "tfrecord", "npy", "fixed"}[dice.IntN(6)], name, latin1(raw)})
	}
	program := `answer = lambda q: codec_of(q["Format"], q["Path"], q["Raw"].encode("latin-1"))`
	for i, want := range formattest.Specified[question, string](t, program, questions) {
		q := questions[i]
		f, err := formats.New(spec.Format{Name: q.Format, RecordBytes: 10})
		require.NoError(t, err)
		raw := make([]byte, 0, len(q.Raw))
		for _, r := range q.Raw {
			raw = append(raw, byte(r))
		}
		require.Equal(t, want, codecName(formats.CodecOf(f, q.Path, raw)), "%+v", q)
	}
}

// latin1 returns a text whose characters are the bytes of s.
func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}
