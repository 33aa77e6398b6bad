package tokens_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/tokens"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func newFormat(t require.TestingT, f spec.Format) format.Paired {
	x, err := tokens.New(f)
	require.NoError(t, err)
	return x.(format.Paired)
}

// idx returns an .idx of Megatron.
func idx(code byte, width int, lengths ...int) []byte {
	b := append([]byte("MMIDIDX\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), code)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(lengths)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(lengths)+1))
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	at := 0
	for _, n := range lengths {
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		at += n * width
	}
	for i := range len(lengths) + 1 {
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

// ends returns a .ds.index of datatrove.
func ends(list ...uint64) (b []byte) {
	for _, n := range list {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func with(f format.Paired, path string, description []byte) format.Format {
	return f.With(path, bytes.NewReader(description), int64(len(description)))
}

// naivePacked returns the records of a file of size bytes.
func naivePacked(size, width, length, labels, header int, described bool, want int) (o formattest.Outcome) {
	if described && size != want {
		return formattest.Outcome{Refused: true}
	}
	n := (length + labels) * width
	for at := header; at+n <= size; at += length * width {
		o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(at), SizeBytes: int64(n)})
	}
	o.Damaged = size < header || (size-header)%width != 0
	return o
}

func TestSuite(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abc"), 20)
	for _, c := range []struct {
		name                                string
		f                                   spec.Format
		kind                                string
		path                                string
		description                         []byte
		size, width, length, labels, header int
	}{
		{"nothing describes them", spec.Format{Rows: spec.Rows{Pack: "4", Dtype: "u2"}}, "'<u2' (4,)", "", nil, 92, 2, 4, 0, 0},
		{"records overlap", spec.Format{Rows: spec.Rows{Pack: "4+1", Dtype: "u4"}}, "'<u4' (5,)", "", nil, 92, 4, 4, 1, 0},
		{"behind a header", spec.Format{HeaderBytes: 10, Rows: spec.Rows{Pack: "3", Dtype: "i8"}}, "'<i8' (3,)", "", nil, 10 + 80, 8, 3, 0, 10},
		{"Megatron's", spec.Format{Rows: spec.Rows{Pack: "3+1"}}, "'<u2' (4,)", "a.idx", idx(8, 2, 5, 0, 17), 44, 2, 3, 1, 0},
		{"Megatron's, of bytes", spec.Format{Rows: spec.Rows{Pack: "5"}}, "'|u1' (5,)", "a.idx", idx(1, 1, 5, 0, 17), 22, 1, 5, 0, 0},
		{"datatrove's", spec.Format{Rows: spec.Rows{Pack: "3", Dtype: "u4"}}, "'<u4' (3,)", "a.ds.index", ends(3, 3, 11), 44, 4, 3, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := format.Format(newFormat(t, c.f))
			if c.path != "" {
				f = with(f.(format.Paired), c.path, c.description)
			}
			formattest.Suite{
				Format: f,
				Shards: []formattest.Shard{{Name: "shard", Bytes: data[:c.size]}},
				Naive: func(shard []byte) formattest.Outcome {
					o := naivePacked(len(shard), c.width, c.length, c.labels, c.header, c.path != "", c.size)
					o.Kind = c.kind
					return o
				},
				Draw: func(t *rapid.T) []byte { return make([]byte, rapid.IntRange(0, 200).Draw(t, "size")) },
			}.Run(t)
		})
	}
}

// documents returns the records of a shard, or the error.
func documents(f format.Format, shard []byte) (records [][2]int64, err error) {
	_, err = format.Scan(context.Background(), f, nil, bytes.NewReader(shard), int64(len(shard)), func(e format.Extent) error {
		records = append(records, [2]int64{e.OffsetBytes, e.SizeBytes})
		return nil
	}, func() {})
	return records, err
}

func TestDocumentsAreRecords(t *testing.T) {
	f := newFormat(t, spec.Format{})
	for code, width := range map[byte]int{1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 8, 7: 4, 8: 2} {
		got, err := documents(with(f, "a.idx", idx(code, width, 0, 3, 0, 1)), make([]byte, 4*width))
		require.NoError(t, err)
		w := int64(width)
		require.Equal(t, [][2]int64{{0, 3 * w}, {3 * w, w}}, got)
	}
	withModes := append(idx(8, 2, 1, 2), 0, 1)
	got, err := documents(with(f, "a.idx", withModes), make([]byte, 6))
	require.NoError(t, err)
	require.Equal(t, [][2]int64{{0, 2}, {2, 4}}, got)
	got, err = documents(with(newFormat(t, spec.Format{Rows: spec.Rows{Dtype: "u4"}}), "a.ds.index", ends(0, 2, 2, 3)), make([]byte, 12))
	require.NoError(t, err)
	require.Equal(t, [][2]int64{{0, 8}, {8, 4}}, got)
	got, err = documents(with(f, "a.idx", idx(8, 2)), nil)
	require.NoError(t, err)
	require.Empty(t, got)
}

func edited(b []byte, at int, with ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	return b
}

func TestWhatDescriptionsMayNotSay(t *testing.T) {
	sound := idx(8, 2, 5, 6)
	huge := bytes.Repeat([]byte{0xff}, 8)
	for _, c := range []struct {
		name, path string
		beside     []byte
		rows       spec.Rows
		size       int
		want       string
	}{
		{"not Megatron's", "a.idx", []byte("0 1 2\n"), spec.Rows{}, 22, "a.idx beside it is not an index of Megatron"},
		{"empty", "a.idx", nil, spec.Rows{}, 22, "not an index of Megatron"},
		{"cut off in its head", "a.idx", sound[:30], spec.Rows{}, 22, "its head alone has 34"},
		{"cut off", "a.idx", sound[:len(sound)-1], spec.Rows{}, 22, "2 sequences and 3 document indices"},
		{"of another version", "a.idx", edited(sound, 9, 2), spec.Rows{}, 22, "version 2"},
		{"of an unknown dtype", "a.idx", edited(sound, 17, 9), spec.Rows{}, 22, "dtype 9"},
		{"of dtype 0", "a.idx", edited(sound, 17, 0), spec.Rows{}, 22, "dtype 0"},
		{"more sequences than bytes", "a.idx", edited(sound, 18, huge...), spec.Rows{}, 22, "18446744073709551615 sequences"},
		{"more documents than bytes", "a.idx", edited(sound, 26, huge...), spec.Rows{}, 22, "18446744073709551615 document indices"},
		{"a length below 0", "a.idx", edited(sound, 38, 0xff, 0xff, 0xff, 0xff), spec.Rows{}, 22, "sequence 1 has -1 tokens"},
		{"a pointer that leaves a gap", "a.idx", edited(sound, 50, 12), spec.Rows{}, 22, "sequence 1 begins at byte 12 by its pointer in a.idx, and at byte 10"},
		{"a first pointer", "a.idx", edited(sound, 42, 2), spec.Rows{}, 22, "sequence 0 begins at byte 2"},
		{"a shard that is shorter", "a.idx", sound, spec.Rows{}, 20, "it has 20 bytes, and by a.idx at least 22"},
		{"a shard that is longer", "a.idx", sound, spec.Rows{}, 23, "it has bytes after byte 22"},
		{"another dtype than was given", "a.idx", sound, spec.Rows{Dtype: "u4"}, 22, "its tokens are u2 by a.idx beside it, and --dtype is u4"},
		{"no whole numbers", "a.ds.index", make([]byte, 9), spec.Rows{Dtype: "u2"}, 22, "a.ds.index beside it has 9 bytes"},
		{"ends that descend", "a.ds.index", ends(5, 4), spec.Rows{Dtype: "u2"}, 22, "document 1 ends at token 4"},
		{"an end beyond all files", "a.ds.index", ends(5, math.MaxUint64), spec.Rows{Dtype: "u2"}, 22, "document 1 ends beyond byte"},
		{"an end beyond the shard", "a.ds.index", ends(5, 12), spec.Rows{Dtype: "u2"}, 22, "it has 22 bytes, and by a.ds.index at least 24"},
		{"no dtype", "a.ds.index", ends(5, 11), spec.Rows{}, 22, "--dtype u2, or u4"},
	} {
		for _, pack := range []string{"", "2"} {
			t.Run(fmt.Sprintf("%s, pack %q", c.name, pack), func(t *testing.T) {
				c.rows.Pack = pack
				_, err := documents(with(newFormat(t, spec.Format{Rows: c.rows}), c.path, c.beside), make([]byte, c.size))
				var refused *format.RefusedError
				require.ErrorAs(t, err, &refused)
				require.ErrorContains(t, err, c.want)
			})
		}
	}
}

func TestShardsThatNothingDescribes(t *testing.T) {
	_, err := documents(newFormat(t, spec.Format{}), make([]byte, 4))
	require.ErrorContains(t, err, "--dtype u2")
	_, err = documents(newFormat(t, spec.Format{Rows: spec.Rows{Dtype: "u2"}}), make([]byte, 4))
	require.ErrorContains(t, err, "give --pack L")
	_, err = documents(with(newFormat(t, spec.Format{HeaderBytes: 2, Rows: spec.Rows{Pack: "1"}}), "a.idx", idx(8, 2, 1)), make([]byte, 4))
	require.ErrorContains(t, err, "--header-bytes is for files without a description")
}

func TestParametersThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		rows spec.Rows
		want string
	}{
		{spec.Rows{EOS: "0", Pack: "4"}, "let the tokenizer write"},
		{spec.Rows{Columns: "a"}, "files of tokens have no columns"},
		{spec.Rows{Groups: true}, "files of tokens have no columns"},
		{spec.Rows{Dtype: "f4"}, "--dtype f4"},
		{spec.Rows{Pack: "4-1"}, "--pack 4-1"},
	} {
		_, err := tokens.New(spec.Format{Rows: c.rows})
		require.ErrorContains(t, err, c.want)
	}
}

func TestCompanions(t *testing.T) {
	f := tokens.Format{}
	for path, want := range map[string]string{
		"a/x.bin": "a/x.idx", "x.ds": "x.ds.index", "x.npy": "", ".bin": "", "a/.ds": "", "x.bin.gz": "", "x.BIN": "",
	} {
		require.Equal(t, want, f.Companion(path), path)
	}
	for _, c := range []struct {
		path, data string
		want       bool
	}{{"a.idx", string(idx(8, 2, 1)), true}, {"a.idx", "MMIDIDX", false}, {"a.idx", "0 1 2 3 4 5 6 7 8 9", false}, {"a.ds.index", "", true}} {
		is, err := f.Describes(c.path, bytes.NewReader([]byte(c.data)), int64(len(c.data)))
		require.NoError(t, err)
		require.Equal(t, c.want, is, c.path)
	}
}

func TestKindsAreDtypes(t *testing.T) {
	packed, documents := newFormat(t, spec.Format{Rows: spec.Rows{Pack: "4"}}).(format.Uniform), newFormat(t, spec.Format{}).(format.Uniform)
	x, err := packed.OfKind("'<u2' (4,)")
	require.NoError(t, err)
	require.Contains(t, string(x.(format.Framer).Prologue(7)), "'shape': (7, 4)")
	require.Equal(t, ".npy", x.StreamExtension("a.bin"))
	_, err = packed.OfKind("u2")
	require.Error(t, err)
	x, err = documents.OfKind("u2")
	require.NoError(t, err)
	require.Equal(t, ".bin", x.StreamExtension("a.ds"))
	_, err = documents.OfKind("'<u2' (4,)")
	require.Error(t, err)
	require.Equal(t, " u2 pack 4+1", tokens.Text(spec.Format{Rows: spec.Rows{Pack: "4+1", Dtype: "u2"}}, "'<u2' (5,)"))
	require.Equal(t, " u1 header 8 pack 4", tokens.Text(spec.Format{HeaderBytes: 8, Rows: spec.Rows{Pack: "4"}}, "'|u1' (4,)"))
	require.Equal(t, " i4", tokens.Text(spec.Format{}, "i4"))
	require.Equal(t, " pack 4 dtype u2", tokens.Line(spec.Format{Rows: spec.Rows{Pack: "4", Dtype: "u2"}}))
}

// A description that claims anything gives records inside of the shard, one behind the other, or an
// error; it takes no memory by its claims.
func FuzzDescriptions(f *testing.F) {
	f.Add(idx(8, 2, 5, 6), uint16(22), true)
	f.Add(idx(5, 8, 1, 0, 1), uint16(16), true)
	f.Add(ends(1, 2, 11), uint16(22), false)
	f.Add(edited(idx(8, 2, 5, 6), 18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), uint16(22), true)
	f.Fuzz(func(t *testing.T, description []byte, size uint16, megatron bool) {
		path, rows := "a.ds.index", spec.Rows{Dtype: "u2"}
		if megatron {
			path, rows = "a.idx", spec.Rows{}
		}
		at := int64(0)
		list, err := documents(with(newFormat(t, spec.Format{Rows: rows}), path, description), make([]byte, size))
		for _, r := range list {
			require.Equal(t, at, r[0])
			require.Positive(t, r[1])
			at += r[1]
		}
		require.LessOrEqual(t, at, int64(size))
		rows.Pack = "3+1"
		_, packed := documents(with(newFormat(t, spec.Format{Rows: rows}), path, description), make([]byte, size))
		require.Equal(t, err == nil, packed == nil, "%v, packed %v", err, packed)
		if err == nil {
			require.Equal(t, int64(size), at)
		}
	})
}
