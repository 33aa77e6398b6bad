package lines_test

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/lines"
)

// naive splits a whole file.
func naive(shard []byte) formattest.Outcome {
	var o formattest.Outcome
	at := 0
	if bytes.HasPrefix(shard, []byte("\xef\xbb\xbf")) {
		at = 3
	}
	for _, line := range bytes.SplitAfter(shard[at:], []byte("\n")) {
		size := len(line)
		if !bytes.HasSuffix(line, []byte("\n")) {
			size++
		}
		if strings.Trim(string(line), " \t\r\n") != "" {
			o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(size)})
		}
		at += len(line)
	}
	return o
}

// naiveJSON also refuses a file whose first line is not a JSON value.
func naiveJSON(shard []byte) formattest.Outcome {
	o := naive(shard)
	if len(o.Records) > 0 {
		first := o.Records[0]
		o.Refused = !json.Valid(shard[first.OffsetBytes:min(first.OffsetBytes+first.SizeBytes, int64(len(shard)))])
	}
	return o
}

func suite(f lines.Format, shards ...formattest.Shard) formattest.Suite {
	return formattest.Suite{
		Format: f,
		Shards: shards,
		Naive:  map[string]func([]byte) formattest.Outcome{"jsonl": naiveJSON, "lines": naive}[f.Name()],
		Draw: func(t *rapid.T) []byte {
			return []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", " ", "\t", "\r", "a", "{}", "\xef\xbb\xbf", strings.Repeat("long", 50)}), 1, 60).Draw(t, "parts"), ""))
		},
		EndsAnywhere: true,
	}
}

func TestSuite(t *testing.T) {
	t.Run("jsonl", suite(lines.JSONL(), formattest.Shard{Name: "lines", Bytes: []byte("{\"a\":1}\n{\"a\":2}\r\n{}\n")}).Run)
	t.Run("lines", suite(lines.Lines(),
		formattest.Shard{Name: "a last line without its newline", Bytes: []byte("one\ntwo\nthree")},
		formattest.Shard{Name: "blank lines", Bytes: []byte("\n\none\n \t\r\n\r\ntwo\n\n \nthree\n \t")},
		formattest.Shard{Name: "a byte order mark", Bytes: []byte("\xef\xbb\xbfone\ntwo\n\xef\xbb\xbf\n")},
		formattest.Shard{Name: "a byte order mark alone", Bytes: []byte("\xef\xbb\xbf")},
		formattest.Shard{Name: "a byte order mark and a blank line", Bytes: []byte("\xef\xbb\xbf\nx")},
		formattest.Shard{Name: "nothing but blank lines", Bytes: []byte("\n\n \n\t")},
		formattest.Shard{Name: "NUL is no white space", Bytes: []byte("\x00\n\x0b\n")},
	).Run)
}

func index(t require.TestingT, raw []byte) (records []formattest.Record) {
	s, err := format.Scan(context.Background(), lines.Lines(), nil, bytes.NewReader(raw), int64(len(raw)), func(e format.Extent) error {
		records = append(records, formattest.Record{OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes})
		return nil
	}, func() {})
	require.NoError(t, err)
	require.Nil(t, s.Damage)
	return records
}

func TestLineShorterThanByteOrderMarkIsKeptBeforeDamage(t *testing.T) {
	for _, c := range []struct {
		name, first string
		want        []formattest.Record
	}{
		{"a line", "1\n", []formattest.Record{{SizeBytes: 2}}},
		{"a line without its newline", "12", nil},
		{"the beginning of a mark", "\xef\xbb", nil},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := append(formattest.Gzip([]byte(c.first)), formattest.Gzip([]byte("2\n"))...)
			raw = raw[:len(raw)-1]
			var records []formattest.Record
			s, err := format.Scan(context.Background(), lines.Lines(), gzip.Codec{}, bytes.NewReader(raw), int64(len(raw)), func(e format.Extent) error {
				records = append(records, formattest.Record{OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes})
				return nil
			}, func() { records = nil })
			require.NoError(t, err)
			require.Equal(t, c.want, records)
			require.NotNil(t, s.Damage)
			require.Equal(t, int64(len(c.first)), s.Damage.OffsetBytes)
			require.Equal(t, int64(len(c.want)), s.Damage.Record)
		})
	}
}

func TestLongLinesAreNotBuffered(t *testing.T) {
	shard := append(bytes.Repeat([]byte("x"), 24<<20), "\nshort\n"...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	records := index(t, shard)
	runtime.ReadMemStats(&after)
	require.Equal(t, []formattest.Record{{OffsetBytes: 0, SizeBytes: 24<<20 + 1}, {OffsetBytes: 24<<20 + 1, SizeBytes: 6}}, records)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

func TestSniff(t *testing.T) {
	long := func(s string) []byte { return []byte(s + strings.Repeat("x", format.SniffBytes))[:format.SniffBytes] }
	for _, c := range []struct {
		name string
		head []byte
		want bool
	}{
		{"an object", []byte("{\"a\": [1, {\"b\": null}]}\nwhatever"), true},
		{"an object without a newline", []byte("{\"a\": 1}"), true},
		{"an object behind a byte order mark", []byte("\xef\xbb\xbf {}\r\n"), true},
		{"an array", []byte("[1]\n{}\n"), false},
		{"a number", []byte("1\n"), false},
		{"a pretty-printed object", []byte("{\n\"a\": 1}\n"), false},
		{"an object that is cut off by the file's end", []byte("{\"a\": 1"), false},
		{"two objects on a line", []byte("{} {}\n"), false},
		{"nothing", nil, false},
		{"blank lines before an object", []byte("\n \r\n{}\n"), true},
		{"NaN and the infinities, as Python writes them", []byte("{\"a\": NaN, \"b\": [-Infinity, Infinity], \"c\": \"NaN\"}\n"), true},
		{"a NaN in a word", []byte("{\"a\": NaNs}\n"), false},
		{"text", []byte("hello {}\n"), false},
		{"the beginning of a long string in an object", long("{\"a\": \""), true},
		{"the beginning of a long text behind a brace", long("{a"), false},
		{"an object and a long text", long("{\"a\": 1} and "), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, lines.JSONL().Sniff(c.head))
			require.False(t, lines.Lines().Sniff(c.head))
		})
	}
}

func TestLongObjectsAreSniffedWhereverTheyAreCut(t *testing.T) {
	object, err := json.Marshal(map[string]any{"text": strings.Repeat("ä\"\\", 12000), "n": []any{1.5e3, true, nil, map[string]int{"x": -1}}})
	require.NoError(t, err)
	for pad := range 40 {
		head := append([]byte("{\"p\": \""+strings.Repeat("p", pad)+"\", \"v\": "), object...)
		require.Greater(t, len(head), format.SniffBytes)
		require.True(t, lines.JSONL().Sniff(head[:format.SniffBytes]))
	}
}

func TestLongObjectWithNaNIsSniffedWhereverItIsCut(t *testing.T) {
	for pad := range 40 {
		line := "{\"p\": \"" + strings.Repeat("p", pad) + "\", \"v\": [" + strings.Repeat("NaN, -Infinity, \"NaN\\\\\", ", 4000)
		require.True(t, lines.JSONL().Sniff([]byte(line)[:format.SniffBytes]))
	}
}

func TestJSONLStartingWithoutValueIsRefused(t *testing.T) {
	long := strings.Repeat("x", format.SniffBytes)
	for _, c := range []struct {
		name, head string
		whole      bool
		want       string // in the reason; "" for none
	}{
		{"an object", "{}\n", true, ""},
		{"an array", "[1]\nanything", true, ""},
		{"a number without a newline", "12", true, ""},
		{"NaN", "NaN\n", true, ""},
		{"blank lines alone", "\n \n", true, ""},
		{"nothing", "", true, ""},
		{"a document over many lines", "\n[\n  {", true, "jq -c '.[]' "},
		{"an object over many lines", "{\n", true, "jq -c . "},
		{"text", "hello\n", true, "--format lines"},
		{"a line that the file's end cuts", "{\"a\": 1", true, "not JSON"},
		{"a long line that may go on", ("{\"a\": \"" + long)[:format.SniffBytes], false, ""},
		{"a long text", long, false, "not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := lines.JSONL().RefuseBegin([]byte(c.head), c.whole)
			require.Equal(t, c.want == "", got == "", got)
			require.Contains(t, got, c.want)
			require.Empty(t, lines.Lines().RefuseBegin([]byte(c.head), c.whole))
		})
	}
}

func TestStreamExtension(t *testing.T) {
	require.Equal(t, ".ndjson", lines.JSONL().StreamExtension("a/b.ndjson"))
	require.Equal(t, ".json", lines.JSONL().StreamExtension("b.json"))
	require.Equal(t, ".jsonl", lines.JSONL().StreamExtension("a.b/c"))
	require.Equal(t, ".txt", lines.Lines().StreamExtension("c"))
	require.Equal(t, ".csv", lines.Lines().StreamExtension("c.csv"))
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte("a\nb\r\n \t\r\n\xef\xbb\xbf"))
	f.Add([]byte("\xef\xbb\xbf\n\n{}"))
	f.Fuzz(func(t *testing.T, shard []byte) {
		if len(shard) > 0 {
			require.Equal(t, naive(shard).Records, index(t, shard))
		}
		lines.JSONL().Sniff(shard)
	})
}
