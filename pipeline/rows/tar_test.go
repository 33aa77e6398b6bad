package rows

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// members returns the members of a sample as "suffix: contents", without the key.
func members(t require.TestingT, key string, sample []byte) []string {
	list := []string{}
	r := tar.NewReader(bytes.NewReader(append(slices.Clone(sample), make([]byte, 1024)...)))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return list
		}
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		suffix, found := strings.CutPrefix(h.Name, key+".")
		require.True(t, found, "%s does not begin with %s", h.Name, key)
		list = append(list, suffix+": "+string(data))
	}
}

// sampleOf returns the members of a single row.
func sampleOf(t *testing.T, s Schema, flag string, values ...any) []string {
	columns := resolved(t, s, flag)
	var vectors [][]any
	for _, c := range columns {
		vectors = append(vectors, []any{values[c.Path[0]]})
	}
	var selected Schema
	for _, c := range columns {
		selected = append(selected, Field{c.Name, c.Type})
	}
	p, err := NewTar(columns, "a/b.parquet", 0)
	require.NoError(t, err)
	b := table(selected, vectors...)
	got, err := p.Append(nil, b, 0, 5)
	require.NoError(t, err)
	size, err := p.Size(b, 0, 5)
	require.NoError(t, err)
	require.Len(t, got, int(size))
	return members(t, "a/b/000000005", got)
}

var tImage = structOf(Field{"bytes", nullable(tBinary)}, Field{"path", nullable(tString)})

func TestKeys(t *testing.T) {
	for path, want := range map[string]string{
		"d.v1/train.0.parquet": "d.v1/train_0/",
		"a.parquet":            "a/",
		"a":                    "a/",
		"a.b/c":                "a.b/c/",
		"s/shard.00000.mds":    "s/shard_00000/",
	} {
		require.Equal(t, want, string(keyOf(path)))
	}
	s := Schema{{"x", tInt32}}
	p, err := NewTar(resolved(t, s, ""), "a.parquet", 0)
	require.NoError(t, err)
	b := table(s, ints(1))
	for ordinal, want := range map[int64]string{0: "a/000000000", 1: "a/000000001", 10: "a/000000010", 999999999: "a/999999999", 1000000000: "a/1000000000"} {
		got, err := p.Append(nil, b, 0, ordinal)
		require.NoError(t, err)
		require.Equal(t, []string{`json: {"x":1}`}, members(t, want, got))
	}
}

func TestSamples(t *testing.T) {
	for _, c := range []struct {
		name   string
		schema Schema
		flag   string
		values []any
		want   []string
	}{
		{"binary columns, in their order", Schema{{"b", tBinary}, {"n", tInt32}, {"a", tBinary}}, "", []any{"1", int64(2), "3"},
			[]string{`json: {"b":"b.bin","n":2,"a":"a.bin"}`, "b.bin: 1", "a.bin: 3"}},
		{"nulls have no members", Schema{{"b", nullable(tBinary)}, {"i", tImage}}, "", []any{nil, []any{nil, "x.png"}},
			[]string{`json: {"b":null,"i":{"bytes":null,"path":"x.png"}}`}},
		{"fields of structs", Schema{{"s", structOf(Field{"t", structOf(Field{"x", tBinary})}, Field{"y", tBinary})}}, "", []any{[]any{[]any{"1"}, "2"}},
			[]string{`json: {"s":{"t":{"x":"s.t.x.bin"},"y":"s.y.bin"}}`, "s.t.x.bin: 1", "s.y.bin: 2"}},
		{"elements of lists, by index", Schema{{"l", listOf(listOf(nullable(tBinary)))}}, "", []any{[]any{[]any{"1", nil, "2"}, []any{}, []any{"3"}}},
			[]string{`json: {"l":[["l.0.0.bin",null,"l.0.2.bin"],[],["l.2.0.bin"]]}`, "l.0.0.bin: 1", "l.0.2.bin: 2", "l.2.0.bin: 3"}},
		{"maps aside", Schema{{"m", mapOf(tString, tBinary)}, {"b", tBinary}}, "", []any{[][2]any{{"k", "1"}}, "2"},
			[]string{`json: {"m":[["k","MQ=="]],"b":"b.bin"}`, "b.bin: 2"}},
		{"bytes that are not of names", Schema{{"a b.é/", tBinary}}, "", []any{"1"},
			[]string{`json: {"a b.é/":"a_b____.bin"}`, "a_b____.bin: 1"}},
		{"a path before the bytes", Schema{{"i", structOf(Field{"path", tString}, Field{"bytes", tBinary})}}, "", []any{[]any{"a/b.c.Tar7", "1"}},
			[]string{`json: {"i":{"path":"a/b.c.Tar7","bytes":"i.tar7"}}`, "i.tar7: 1"}},
		{"a third field", Schema{{"i", structOf(Field{"bytes", tBinary}, Field{"path", tString}, Field{"x", tInt32})}}, "", []any{[]any{"1", "a.b", int64(1)}},
			[]string{`json: {"i":{"bytes":"i.bytes.bin","path":"a.b","x":1}}`, "i.bytes.bin: 1"}},
		{"a path that is not a string", Schema{{"i", structOf(Field{"bytes", tBinary}, Field{"path", tBinary})}}, "", []any{[]any{"1", "2"}},
			[]string{`json: {"i":{"bytes":"i.bytes.bin","path":"i.path.bin"}}`, "i.bytes.bin: 1", "i.path.bin: 2"}},
		{"empty bytes", Schema{{"i", tImage}}, "", []any{[]any{"", "x.jpeg"}},
			[]string{`json: {"i":{"bytes":"i.jpeg","path":"x.jpeg"}}`, "i.jpeg: "}},
		{"images in lists", Schema{{"l", listOf(tImage)}}, "", []any{[]any{[]any{"1", nil}, []any{"2", "b.mp4"}}},
			[]string{`json: {"l":[{"bytes":"l.0.bin","path":null},{"bytes":"l.1.mp4","path":"b.mp4"}]}`, "l.0.bin: 1", "l.1.mp4: 2"}},
		{"named columns, in the order given", Schema{{"i", tImage}, {"t", tString}, {"n", tInt32}, {"l", listOf(tBinary)}, {"f", tUUID}, {"b", tBinary}},
			"cls=n,txt=t,jpg=i,j.son=l,id=f,raw=b", []any{[]any{"1", "x.png"}, "a\n\"", int64(7), []any{"2"}, strings.Repeat("\xab", 16), "3"},
			[]string{"cls: 7", "txt: a\n\"", "jpg: 1", `j.son: ["Mg=="]`, `id: "abababab-abab-abab-abab-abababababab"`, "raw: 3"}},
		{"named nulls", Schema{{"i", nullable(tImage)}, {"j", tImage}, {"t", nullable(tString)}, {"n", nullable(tInt32)}}, "cls=n,txt=t,jpg=i,png=j", []any{nil, []any{nil, "x"}, nil, nil},
			[]string{"json: {}"}},
		{"some are named", Schema{{"i", tImage}, {"n", tInt32}}, "*,cls=n", []any{[]any{"1", "x"}, int64(2)},
			[]string{`json: {"i":{"bytes":"i.bin","path":"x"}}`, "i.bin: 1", "cls: 2"}},
		{"a number's text", Schema{{"n", &Type{Kind: Number}}}, "n=n", []any{"x\"y"}, []string{`n: x"y`}},
		{"all are named, one of them json", Schema{{"m", structOf(Field{"a", tInt32})}}, "json=m", []any{ints(1)}, []string{`json: {"a":1}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, sampleOf(t, c.schema, c.flag, c.values...))
		})
	}
}

func TestKindsOfBinaryValues(t *testing.T) {
	for _, c := range []struct{ value, path, want string }{
		{"\xff\xd8\xff", "", "jpg"}, {"\xff\xd8", "", "bin"}, {"\x89PNG\r\n\x1a\n", "", "png"}, {"\x89PNG\r\n\x1a", "", "bin"},
		{"GIF87a", "", "gif"}, {"fLaC", "", "flac"}, {"OggS", "", "ogg"}, {"ID3", "", "mp3"}, {"%PDF", "", "pdf"},
		{"RIFF????WEBP", "", "webp"}, {"RIFF????WAVE", "", "wav"}, {"RIFX????WAVE", "", "bin"}, {"RIFF????AVI ", "", "bin"},
		{"????ftyp", "", "mp4"}, {"ftyp", "", "bin"}, {"", "", "bin"},
		{"\xff\xd8\xff", "x.png", "jpg"}, {"", "a.b/c", "bin"}, {"", "a/b.TIFF", "tiff"}, {"", "a/b.c.12345678", "12345678"},
		{"", "a/b.c.123456789", "bin"}, {"", "x.", "bin"}, {"", "x.t-f", "bin"}, {"", "x.é", "bin"}, {"", ".jpg", "jpg"},
	} {
		require.Equal(t, "."+c.want, string(appendKind(nil, tBinary, []byte(c.value), []byte(c.path))), "%q %q", c.value, c.path)
	}
	require.Equal(t, ".pil", string(appendKind(nil, &Type{Kind: Binary, Suffix: "pil"}, []byte("\xff\xd8\xff"), nil)))
}

func TestSuffixesThatClash(t *testing.T) {
	jpg, png := &Type{Kind: Binary, Suffix: "jpg"}, &Type{Kind: Binary, Suffix: "png"}
	number := func(name string) Field { return Field{name, listOf(tBinary)} }
	for _, c := range []struct {
		name, flag string
		schema     Schema
		want       string
	}{
		{"case", "", Schema{{"Img", tBinary}, {"img", tBinary}}, "Img and img can be members of a sample with the same name, img.bin: give one of them another name with --columns NAME=PATH"},
		{"replaced bytes", "", Schema{{"a b", tBinary}, {"a.b", tBinary}}, `"a b" and "a.b" can be members of a sample with the same name, a_b.bin`},
		{"an index", "", Schema{{"a", structOf(Field{"0", tBinary}, Field{"x", tInt32})}, {"A", listOf(tBinary)}}, "a.0 and A can be members of a sample with the same name, a.0.bin"},
		{"an image and binary", "", Schema{{"a", tImage}, {"A", tBinary}}, "a and A can be"},
		{"what the format defines and binary", "", Schema{{"a", jpg}, {"A", tBinary}}, "a and A can be members of a sample with the same name, a.jpg"},
		{"two names", "txt=a,TXT=b", Schema{{"a", tString}, {"b", tString}}, "txt and TXT can be"},
		{"a name and a suffix", "img.JPG=n,img", Schema{{"img", tBinary}, {"n", tInt32}}, `img and "img.JPG" can be members of a sample with the same name, img.jpg`},
		{"a name and an image's extension", "i.x1=n,i", Schema{{"i", tImage}, {"n", tInt32}}, `i and "i.x1" can be`},
		{"a name and json", "JSON=a,b", Schema{{"a", tString}, {"b", tString}}, "the JSON object of the columns that are not named and JSON can be members"},
		{"lists in lists", "", Schema{{"A", listOf(structOf(Field{"1", tBinary}, Field{"x", tInt32}))}, {"a", structOf(Field{"3", listOf(tBinary)}, Field{"y", tInt32})}}, "A.1 and a.3 can be"},
		{"none: kinds that differ", "", Schema{{"a", jpg}, {"A", png}}, ""},
		{"none: different depths", "", Schema{{"a", tBinary}, {"A", listOf(tBinary)}}, ""},
		{"none: not an index", "", Schema{number("a"), {"A", structOf(Field{"01", tBinary}, Field{"x", tInt32})}}, ""},
		{"none: a name that is not a kind", "img.txt=n,img", Schema{{"img", tBinary}, {"n", tInt32}}, ""},
		{"none: all are named", "json=a", Schema{{"a", tString}}, ""},
		{"none: not binary", "", Schema{{"a", tString}, {"A", tString}}, ""},
		{"none: maps", "", Schema{{"a", mapOf(tString, tBinary)}, {"A", tBinary}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewTar(resolved(t, c.schema, c.flag), "x", 0)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			var refusal *RefusedError
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := NewTar(resolved(t, Schema{{"a", tString}}, "x/y=a"), "x", 0)
	require.EqualError(t, err, `--columns: the name "x/y" can't be that of a member of a sample: use one without slashes and control characters`)
}

func TestDamagedSamples(t *testing.T) {
	s := Schema{{"b", tBinary}, {"t", tString}}
	b := table(s, []any{"x"}, []any{"\xff"})
	for _, flag := range []string{"", "txt=t,b"} {
		columns := resolved(t, s, flag)
		batch := &Batch{Rows: 1}
		for _, c := range columns {
			batch.Columns = append(batch.Columns, b.Columns[c.Path[0]])
		}
		p, err := NewTar(columns, "x", 0)
		require.NoError(t, err)
		got, err := p.Append([]byte("before"), batch, 0, 0)
		var damage *DamageError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, "before", string(got))
		_, sizeErr := p.Size(batch, 0, 0)
		require.Equal(t, err, sizeErr)
	}
}

// Samples are valid archives: their JSON is that of the row with the suffix of each binary value in
// its place, and the members have the values. The name of a member may be longer than 100 bytes.
func TestSamplesHoldTheRow(t *testing.T) { rapid.Check(t, samplesHoldTheRow) }

func FuzzSamples(f *testing.F) { f.Fuzz(rapid.MakeFuzz(samplesHoldTheRow)) }

var quotedSuffix = regexp.MustCompile(`"([^"]*\.[a-z0-9]{1,8})"`)

func samplesHoldTheRow(t *rapid.T) {
	s, values, b := drawTable(t, false)
	columns, err := Resolve(s, nil)
	require.NoError(t, err)
	base := strings.Repeat("long", rapid.IntRange(0, 80).Draw(t, "long"))
	p, err := NewTar(columns, base+".parquet", 0)
	if err != nil {
		t.Skip(err)
	}
	row := structOf(s...)
	for r := range b.Rows {
		var x []any
		for i := range s {
			x = append(x, values[i][r])
		}
		got, err := p.Append([]byte("before"), b, r, int64(r))
		require.NoError(t, err)
		size, err := p.Size(b, r, int64(r))
		require.NoError(t, err)
		require.Equal(t, int64(len(got)), size+6)
		require.Zero(t, size%512)
		list := members(t, fmt.Sprintf("%s/%09d", base, r), got[6:])
		text, found := strings.CutPrefix(list[0], "json: ")
		require.True(t, found)
		contents := map[string]string{}
		for _, m := range list[1:] {
			suffix, data, _ := strings.Cut(m, ": ")
			require.NotContains(t, contents, suffix)
			contents[suffix] = data
		}
		used := 0
		text = quotedSuffix.ReplaceAllStringFunc(text, func(q string) string {
			data, found := contents[q[1:len(q)-1]]
			if !found {
				return q
			}
			used++
			return `"` + base64.StdEncoding.EncodeToString([]byte(data)) + `"`
		})
		want, _ := twin(row, x)
		require.Equal(t, want, text)
		require.Equal(t, len(contents), used)
		for limit := int64(1); limit <= size; limit += 256 {
			short, err := NewTar(columns, base+".parquet", limit)
			require.NoError(t, err)
			got, err := short.Append([]byte("before"), b, r, int64(r))
			_, sizeErr := short.Size(b, r, int64(r))
			require.Equal(t, limit < size, err != nil)
			require.Equal(t, limit < size, sizeErr != nil)
			if err != nil {
				require.ErrorContains(t, err, "longer than --max-record")
				require.Equal(t, "before", string(got))
			}
		}
	}
}
