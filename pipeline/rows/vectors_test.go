package rows

import (
	"math"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	tarformat "github.com/lsiofs/lsiofs/pipeline/format/tar"
)

// shard is the rows of one shard, by column.
type shard struct {
	path    string
	columns [][]any
}

// stream returns all records of some shards, one after another, and checks the sizes.
func stream(t *testing.T, s Schema, shards []shard, present func(sh shard) Presenter, resolved []Column) []byte {
	var out []byte
	for _, sh := range shards {
		p := present(sh)
		full := table(s, sh.columns...)
		b := &Batch{Rows: full.Rows}
		for _, c := range resolved {
			v := full.Columns[c.Path[0]].Vector
			require.Len(t, c.Path, 1)
			b.Columns = append(b.Columns, Slots{v, 0})
		}
		for r := range b.Rows {
			size, err := p.Size(b, r, int64(r))
			require.NoError(t, err)
			before := len(out)
			out, err = p.Append(out, b, r, int64(r))
			require.NoError(t, err)
			require.Equal(t, int64(len(out)-before), size)
		}
	}
	return out
}

func wanted(t *testing.T, name string) string {
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(data)
}

func resolved(t *testing.T, s Schema, text string) []Column {
	var items []Item
	var err error
	if text != "" {
		items, err = ParseColumns(text)
		require.NoError(t, err)
	}
	columns, err := Resolve(s, items)
	require.NoError(t, err)
	return columns
}

// The streams of testdata were written by another program, from the same rows.
func TestVectorsOfLines(t *testing.T) {
	s := Schema{
		{"id", tInt64}, {"text", nullable(tString)}, {"score", tDouble}, {"f", tFloat}, {"ok", nullable(tBool)},
		{"n", nullable(tUint32)}, {"tags", nullable(listOf(nullable(tString)))},
		{"meta", nullable(structOf(Field{"lang", nullable(tString)}, Field{"big", tUint64}))},
		{"day", nullable(tDate)}, {"ts", nullable(tMicros)},
		{"price", nullable(&Type{Kind: Decimal, Precision: 9, Scale: 2})}, {"blob", nullable(tBinary)},
	}
	const maxTime = 253402300799999999
	all := shard{columns: [][]any{
		ints(1, -2, 3, 4, 5),
		{"plain", "\"q\\ \b\f\n\r\t\x01\x7f é 中 😀", "", nil, "plain"},
		{0.1, 1e16, math.NaN(), math.Copysign(0, -1), 1e-5},
		{0.1, 1e20, math.Inf(-1), 3.0, 1e-45},
		{true, false, nil, true, true},
		{uint64(4294967295), uint64(0), nil, uint64(7), uint64(7)},
		{[]any{"a", nil, ""}, []any{}, nil, []any{"x"}, []any{"x", "y", "z"}},
		{[]any{"en", uint64(math.MaxUint64)}, []any{nil, uint64(0)}, nil, []any{"de", uint64(1)}, []any{"de", uint64(1)}},
		{int64(1), int64(-719162), nil, int64(19782), int64(2932896)},
		{int64(1000000000000001), int64(-1), nil, int64(0), int64(maxTime)},
		{big.NewInt(-5), big.NewInt(1234567), nil, big.NewInt(100), big.NewInt(0)},
		{"\x00\x01\x02\x03", "", nil, "\xff", "abc"},
	}}
	for name, flag := range map[string]string{"parquet-jsonl.jsonl": "", "parquet-columns.jsonl": "text,i=id"} {
		columns := resolved(t, s, flag)
		lines := stream(t, s, []shard{all}, func(shard) Presenter { return NewJSONL(columns, 0) }, columns)
		require.Equal(t, wanted(t, name), string(lines))
	}
}

func TestVectorsOfSamples(t *testing.T) {
	image := nullable(structOf(Field{"bytes", nullable(tBinary)}, Field{"path", nullable(tString)}))
	s := Schema{{"image", image}, {"label", tInt64}, {"caption", nullable(tString)}, {"more", nullable(listOf(image))}}
	all := shard{path: "d.v1/train.0.parquet", columns: [][]any{
		{[]any{"\xff\xd8\xff\xe0jpeg", "n01/a.b.PNG"}, []any{"??", "x.TIFF"}, nil},
		ints(7, 8, 9),
		{`a "cat"`, "", nil},
		{[]any{}, []any{[]any{"RIFF\x00\x00\x00\x00WEBPx", nil}, nil, []any{"zz", "no-dot"}}, nil},
	}}
	for name, flag := range map[string]string{"parquet-tar.tar": "", "parquet-tar-named.tar": "jpg=image,txt=caption,cls=label"} {
		columns := resolved(t, s, flag)
		samples := stream(t, s, []shard{all}, func(sh shard) Presenter {
			p, err := NewTar(columns, sh.path, 0)
			require.NoError(t, err)
			return p
		}, columns)
		require.Equal(t, wanted(t, name), string(samples)+string(tarformat.Format{}.Epilogue(3)))
	}
}

func TestVectorsOfArrays(t *testing.T) {
	s := Schema{{"x", tInt32}, {"v", listOf(tFloat)}}
	all := shard{columns: [][]any{
		ints(-1, 0, 1, 2),
		{[]any{0.0, 0.5, 0.0}, []any{1.0, 1.5, -1.0}, []any{2.0, 2.5, -2.0}, []any{3.0, 3.5, -3.0}},
	}}
	columns := resolved(t, s, "")
	p, err := NewNPY(columns, nil, 0)
	require.NoError(t, err)
	require.Nil(t, p.Lengths())
	data := stream(t, s, []shard{all}, func(shard) Presenter { return p }, columns)
	rows, err := p.Rows()
	require.NoError(t, err)
	require.Equal(t, wanted(t, "parquet-npy.npy"), string(rows.Prologue(4))+string(data))
	require.Equal(t, [][]int64{{}, {3}}, p.Lengths())
	kind := KindText(columns, &rows)
	require.Equal(t, "x: int32, v: list<float32>\n[('x', '<i4'), ('', '|V60'), ('v', '<f4', (3,)), ('', '|V52')] ()", kind)
	_, kind, _ = strings.Cut(kind, "\n")
	again, err := npy.Format{}.OfKind(kind)
	require.NoError(t, err)
	require.Equal(t, rows, again)
	require.Equal(t, "x: int32, v: list<float32>", KindText(columns, nil))
}

func TestVectorsOfTokens(t *testing.T) {
	s := Schema{{"input_ids", nullable(listOf(tInt32))}}
	shards := []shard{
		{columns: [][]any{{ints(1, 2, 3), ints(), ints(4), nil, ints(5, 6, 7, 8, 9, 10)}}},
		{columns: [][]any{{ints(11, 12, 13, 14, 15), ints(16, 17)}}},
	}
	for name, length := range map[string]string{"parquet-pack.npy": "4", "parquet-pack-labels.npy": "4+1"} {
		pack, err := ParsePack(length)
		require.NoError(t, err)
		pack.HasEOS = true
		var out []byte
		var packer *Packer
		for _, sh := range shards {
			packer, err = NewPacker(pack, resolved(t, s, ""))
			require.NoError(t, err)
			var decoded []byte
			b := table(s, sh.columns...)
			for r := range b.Rows {
				decoded, err = packer.Append(decoded, b, r)
				require.NoError(t, err)
			}
			require.Equal(t, int64(len(decoded)), packer.Count()*packer.TokenBytes())
			for i := range packer.Records(packer.Count()) {
				at, size := packer.Extent(i, packer.TokenBytes())
				out = append(out, decoded[at:at+size]...)
			}
		}
		rows, err := packer.Rows()
		require.NoError(t, err)
		require.Equal(t, wanted(t, name), string(rows.Prologue(uint64(int64(len(out))/rows.RowBytes())))+string(out))
	}
}

// MDS has texts of numbers and of JSON, arrays whose shapes differ by row, and images that are JPEG
// whatever their bytes are.
func TestVectorsOfMDS(t *testing.T) {
	s := Schema{
		{"big", &Type{Kind: Number}}, {"id", tInt64}, {"meta", &Type{Kind: JSON}}, {"text", tString},
		{"tok", arrayOf(&Type{Kind: Int, Bits: 16, Unsigned: true})}, {"w", tFloat},
	}
	columns := resolved(t, s, "")
	lines := stream(t, s, []shard{{columns: [][]any{
		{"123456789012345678901234567890", "-1"}, ints(-5, 6), {`{"a": [1, 2]}`, "null"}, {"a\n\"b\"", "é"},
		{ndarray{Dims{3}, []any{uint64(1), uint64(2), uint64(65535)}}, ndarray{Dims{2, 1}, []any{uint64(7), uint64(8)}}}, {0.1, 2.0},
	}}}, func(shard) Presenter { return NewJSONL(columns, 0) }, columns)
	require.Equal(t, wanted(t, "mds-jsonl.jsonl"), string(lines))

	s = Schema{{"x", &Type{Kind: Binary, Suffix: "jpg"}}, {"y", tInt64}}
	columns = resolved(t, s, "")
	samples := stream(t, s, []shard{{"s/shard.00000.mds", [][]any{{"\xff\xd8\xff1", "\xff\xd8\xff22"}, ints(1, 2)}}}, func(sh shard) Presenter {
		p, err := NewTar(columns, sh.path, 0)
		require.NoError(t, err)
		return p
	}, columns)
	require.Equal(t, wanted(t, "mds-tar.tar"), string(samples)+string(tarformat.Format{}.Epilogue(2)))
}
