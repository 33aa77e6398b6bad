package npy_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
	"github.com/lsiofs/lsiofs/pipeline/format/gzip"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// array returns a file of a version with this dictionary, followed by data.
func array(version byte, dictionary string, data []byte) []byte {
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dictionary)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dictionary)))
	}
	return append(append(b, dictionary...), data...)
}

func dictionary(descr, shape string) string {
	return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }   \n"
}

// golden is a file written by NumPy, and NumPy's description of it.
type golden struct {
	Rows     int    `json:"rows"`
	RowBytes int64  `json:"row_bytes"`
	Descr    string `json:"descr"`
	bytes    []byte
}

func goldens(t testing.TB) map[string]golden {
	said, err := os.ReadFile("testdata/rows.json")
	require.NoError(t, err)
	var all map[string]golden
	require.NoError(t, json.Unmarshal(said, &all))
	for name, g := range all {
		g.bytes, err = os.ReadFile(filepath.Join("testdata", name+".npy"))
		require.NoError(t, err)
		all[name] = g
	}
	return all
}

func scan(shard []byte) (records []formattest.Record, s format.Summary, err error) {
	s, err = format.Scan(context.Background(), npy.Format{}, nil, bytes.NewReader(shard), int64(len(shard)), func(e format.Extent) error {
		records = append(records, formattest.Record{OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes})
		return nil
	}, func() {})
	return records, s, err
}

// refused are the golden files that are not read, and the reasons.
var refused = map[string]string{
	"fortran": "Fortran order", "objects": "Python objects", "objects-in-fields": "Python objects", "no-dimension": "no dimension",
	"greek": "rename them", "empty-rows": "rows have 0 bytes",
}

func TestNumPyArraysYieldTheirRows(t *testing.T) {
	for name, g := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			records, s, err := scan(g.bytes)
			if why, is := refused[name]; is {
				var r *format.RefusedError
				require.ErrorAs(t, err, &r)
				require.ErrorContains(t, err, why)
				return
			}
			require.NoError(t, err)
			require.Nil(t, s.Damage)
			require.Len(t, records, g.Rows)
			for i, r := range records {
				require.Equal(t, g.RowBytes, r.SizeBytes)
				require.Equal(t, int64(len(g.bytes))-int64(g.Rows-i)*g.RowBytes, r.OffsetBytes)
			}
			require.True(t, strings.HasPrefix(s.Kind, g.Descr+" ("), s.Kind)
		})
	}
}

func TestSuite(t *testing.T) {
	var shards []formattest.Shard
	all := goldens(t)
	for _, name := range []string{"float32-v1", "float32-v2", "no-rows", "nested", "titled", "latin-v3", "datetime", "big-endian"} {
		shards = append(shards, formattest.Shard{Name: name, Bytes: all[name].bytes})
	}
	formattest.Suite{Format: npy.Format{}, Shards: shards, Naive: naive, Draw: draw}.Run(t)
}

func draw(t *rapid.T) []byte {
	version := rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "version")
	descr := rapid.SampledFrom([]string{"'<f4'", `"|u1"`, "'<U3'", "'S0'", "'>M8[ns]'", "[('a', '<i2'), ('', '|V6')]",
		"[('a', [('b', '<f8', (2, 3))], 2), (('t', 'c'), '|S3', (2,))]", "[]", "'<f3'", "'|O'", "('<f4', (2,))", "'é'", "[('é', 'u1')]", "[('α', 'u1')]"}).Draw(t, "descr")
	n := rapid.IntRange(0, 5).Draw(t, "rows")
	tail := rapid.SampledFrom([]string{",", ", 3", ", 2, 2,", ", 0", "L, 3L", ", True", ""}).Draw(t, "tail")
	order := rapid.SampledFrom([]string{"False", "False", "False", "True", "0"}).Draw(t, "order")
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': %s, 'shape': (%d%s), }", descr, order, n, tail)
	if version < 3 {
		var b []byte
		for _, c := range text {
			b = append(b, byte(c))
		}
		text = string(b)
	}
	return array(version, text+strings.Repeat(" ", rapid.IntRange(0, 5).Draw(t, "pad"))+"\n", bytes.Repeat([]byte("x"), rapid.IntRange(0, 200).Draw(t, "bytes")))
}

func TestDamage(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 24)
	good := array(1, dictionary("'<f4'", "(3, 2)"), data)
	begin := int64(len(good) - 24)
	for _, c := range []struct {
		name, reason string
		shard        []byte
		rows, offset int64
	}{
		{"a file that ends in the magic", "ends inside the npy header", good[:4], 0, 0},
		{"a file that ends in the length", "ends inside the npy header", good[:9], 0, 0},
		{"a file that ends in the dictionary", "ends inside the npy header", good[:40], 0, 0},
		{"data that end early", "the file ends in row 2 of 3: 7 of its 8 bytes are there", good[:len(good)-1], 2, begin + 16},
		{"bytes behind the data", "follow the last of 3 rows", append(bytes.Clone(good), 0), 3, begin + 24},
		{"a number of rows near 2^63", "row 3 of 9223372036854775807", array(1, dictionary("'<f4'", "(9223372036854775807, 2)"), data), 3, -1},
		{"a number of rows beyond it", "is not a number", array(1, dictionary("'<f4'", "(9223372036854775808, 2)"), data), 0, -1},
		{"a row of 2^62 bytes", "the file ends in row 0 of 3", array(1, dictionary("'<f4'", "(3, 1152921504606846976)"), data), 0, -1},
		{"a negative shape", `'-' where a value should be`, array(1, dictionary("'<f4'", "(-3, 2)"), data), 0, 8},
		{"a shape that is no tuple", "shape is 3, not a tuple", array(1, dictionary("'<f4'", "3"), data), 0, 8},
		{"a shape in parentheses alone", "a tuple of one value needs a comma", array(1, dictionary("'<f4'", "(3)"), data), 0, 8},
		{"a key that is missing", "keys are not", array(1, "{'descr': '<f4', 'shape': (3, 2), }\n", data), 0, 8},
		{"a key too many", "keys are not", array(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), 'x': 1}\n", data), 0, 8},
		{"a key that is there twice", "occurs twice", array(1, "{'descr': '<f4', 'descr': '<f4', 'shape': (3, 2)}\n", data), 0, 8},
		{"an expression", `'*' where`, array(1, dictionary("'<f4'", "(3*2,)"), data), 0, 8},
		{"something behind the dictionary", `'x' where the end`, array(1, dictionary("'<f4'", "(3, 2)")+"x", data), 0, 8},
		{"a string that does not end", "the end of a string", array(1, "{'descr': '<f4, \\'", data), 0, 8},
		{"text that is not UTF-8", "not UTF-8", array(3, dictionary("[('\xff', '<f4')]", "(3, 2)"), data), 0, 12},
		{"numbers with an L in version 3.0", `'L' where a comma`, array(3, dictionary("'<f4'", "(3L, 2L)"), data), 0, 8},
		{"tuples too deep in each other", "more than 64 deep", array(2, dictionary(strings.Repeat("(", 500_000), "(3, 2)"), data), 0, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			records, s, err := scan(c.shard)
			require.NoError(t, err)
			require.Len(t, records, int(c.rows))
			require.NotNil(t, s.Damage)
			require.Contains(t, s.Damage.Reason, c.reason)
			if c.offset >= 0 {
				require.Equal(t, c.offset, s.Damage.OffsetBytes)
			}
		})
	}
}

// The final pass, which ends before the damaged member, returns the kind too.
func TestDamagedMemberKeepsKindOfEarlierRows(t *testing.T) {
	shard := array(1, dictionary("'<f4'", "(3, 2)"), bytes.Repeat([]byte("x"), 24))
	raw := append(formattest.Gzip(shard[:len(shard)-10]), formattest.Gzip(shard[len(shard)-10:])...)
	raw[len(raw)-5] ^= 1
	rows := 0
	s, err := format.Scan(context.Background(), npy.Format{}, gzip.Codec{}, bytes.NewReader(raw), int64(len(raw)),
		func(format.Extent) error { rows++; return nil }, func() { rows = 0 })
	require.NoError(t, err)
	require.NotNil(t, s.Damage)
	require.Equal(t, 1, rows)
	require.Equal(t, "'<f4' (2,)", s.Kind)
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		shard        []byte
	}{
		{"no header", "--format fixed --record-bytes N", []byte{1, 0, 2, 0, 3, 0, 4, 0, 5, 0}},
		{"another version", "npy version 4.0 is not read", array(4, dictionary("'<f4'", "(1,)"), nil)},
		{"another minor version", "npy version 1.1 is not read", []byte("\x93NUMPY\x01\x01\x00\x00")},
		{"a header of more than 1 MiB", "more than the 1048564 that are read", []byte("\x93NUMPY\x02\x00\x00\x00\x10\x00")},
		{"a name of a dtype", "'float32' is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes", array(1, dictionary("'float32'", "(1,)"), nil)},
		{"a dtype that is long", "('x', '<f4'),… is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes", array(1, dictionary("["+strings.Repeat("('x', '<f4'), ", 50)+"]", "(1,)"), nil)},
		{"a number as a dtype", "7 is not a dtype", array(1, dictionary("7", "(1,)"), nil)},
		{"a unit that is none", "is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes", array(1, dictionary("'<M8[xs]'", "(1,)"), nil)},
		{"a field of four values", "is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes", array(1, dictionary("[('a', '<f4', (1,), 2)]", "(1,)"), nil)},
		{"two fields of one name", "is not a dtype that lsiofs knows: save the array as numbers, strings of fixed length or bytes", array(1, dictionary("[('a', '<f4'), (('a', 'b'), '<f4')]", "(1,)"), nil)},
		{"a row beyond 2^63 bytes", "a row has more than 2^63 bytes", array(1, dictionary("'<f8'", "(1, 9223372036854775807)"), nil)},
		{"fields beyond 2^63 bytes", "has more than 2^63 bytes", array(1, dictionary("[('a', '<f8', (4611686018427387904, 4))]", "(1,)"), nil)},
		{"fields that are together", "has more than 2^63 bytes", array(1, dictionary("[('a', '|V9223372036854775807'), ('b', '|u1')]", "(1,)"), nil)},
		{"strings of no characters", "rows have 0 bytes", array(1, dictionary("'<U0'", "(1,)"), nil)},
		{"a dtype that no header of version 1.0 holds", "less than 64 KiB", array(2, dictionary("[('"+strings.Repeat("x", 65400)+"', '<f4')]", "(1,)"), nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := scan(c.shard)
			var r *format.RefusedError
			require.ErrorAs(t, err, &r)
			require.ErrorContains(t, err, c.reason)
		})
	}
}

func ofKind(t testing.TB, kind string) npy.Rows {
	f, err := npy.Format{}.OfKind(kind)
	require.NoError(t, err)
	return f.(npy.Rows)
}

func TestPrologueRoundTrips(t *testing.T) {
	for name, g := range goldens(t) {
		if _, is := refused[name]; is {
			continue
		}
		_, s, err := scan(g.bytes)
		require.NoError(t, err)
		rows := ofKind(t, s.Kind)
		require.Empty(t, rows.Epilogue(3))
		for _, n := range []uint64{0, 1, 9, 10, 99999, 1 << 40, math.MaxUint64} {
			p := rows.Prologue(n)
			require.Zero(t, len(p)%64)
			require.Equal(t, "\x93NUMPY\x01\x00", string(p[:8]))
			require.Equal(t, len(p), 10+int(binary.LittleEndian.Uint16(p[8:])))
			text := strings.TrimRight(string(p[10:len(p)-1]), " ")
			require.Less(t, len(p)-1-10-len(text), 64, "no more spaces than needed")
			require.Equal(t, byte('\n'), p[len(p)-1])
			require.True(t, strings.HasPrefix(text, "{'descr': ") && strings.Contains(text, fmt.Sprintf(", 'fortran_order': False, 'shape': (%d,", n)), text)
		}
		whole := append(rows.Prologue(uint64(g.Rows)), g.bytes[len(g.bytes)-g.Rows*int(g.RowBytes):]...)
		records, again, err := scan(whole)
		require.NoError(t, err)
		require.Nil(t, again.Damage)
		require.Len(t, records, g.Rows)
		require.Equal(t, s.Kind, again.Kind)
	}
}

func TestPrologueIsByteExact(t *testing.T) {
	require.Equal(t, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (12, 3, 224), }"+strings.Repeat(" ", 52)+"\n",
		string(ofKind(t, "'<f4' (3, 224)").Prologue(12)))
	require.Equal(t, "\x93NUMPY\x01\x00\x76\x00{'descr': [('\xe9', '<i8')], 'fortran_order': False, 'shape': (0,), }"+strings.Repeat(" ", 51)+"\n",
		string(ofKind(t, "[('é', '<i8')] ()").Prologue(0)))
}

// A header of 64 bytes needs no space, one of 65 needs 63.
func TestPrologueHasTheFewestSpaces(t *testing.T) {
	seen := map[int]bool{}
	for name := range 70 {
		rows := ofKind(t, fmt.Sprintf("[('%s', '<f4')] ()", strings.Repeat("x", name)))
		p := rows.Prologue(5)
		seen[len(p)-1-len(strings.TrimRight(string(p[:len(p)-1]), " "))] = true
		require.Zero(t, len(p)%64)
	}
	for spaces := range 64 {
		require.True(t, seen[spaces], "%d spaces", spaces)
	}
	require.Len(t, seen, 64)
}

func TestKindsAreEqualIfDtypesAre(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"'<f4' (3,)", "\"<f4\" (3,)", true},
		{"'<f4' (3,)", "'<f4' (3, 1)", false},
		{"'<f4' (3,)", "'>f4' (3,)", false},
		{"'<f4' (3,)", "'<i4' (3,)", false},
		{"'|u1' ()", "'<u1' ()", true},
		{"'|S4' ()", "'<S4' ()", true},
		{"'<f4' ()", "'f4' ()", false},
		{"[('a','<f4'),('b','|i1',2)] ()", "[('a', '<f4'), ('b', '<i1', (2,))] ()", true},
		{"[('a', '<f4')] ()", "[('b', '<f4')] ()", false},
		{"[(('t', 'a'), '<f4')] ()", "[('a', '<f4')] ()", false},
		{"[('a', '<f4'), ('b', '<f4')] ()", "[('a', [('b', '<f4')])] ()", false},
		{"'<M8[ns]' ()", "'<M8[us]' ()", false},
	} {
		require.Equal(t, c.same, npy.Format{}.SameKind(c.a, c.b), "%s and %s", c.a, c.b)
		require.Equal(t, c.same, npy.Format{}.SameKind(c.b, c.a), "%s and %s", c.b, c.a)
		require.True(t, npy.Format{}.SameKind(c.a, c.a))
	}
	for _, kind := range []string{"", "'<f4'", "'<f4' (3", "'<f4' (3,) x", "'<f4' 3", "'<f3' ()", "'|O' ()"} {
		_, err := npy.Format{}.OfKind(kind)
		require.ErrorContains(t, err, "not a kind of format npy")
		require.False(t, npy.Format{}.SameKind(kind, kind))
	}
}

func FuzzIndex(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.bytes)
	}
	f.Fuzz(func(t *testing.T, shard []byte) {
		if len(shard) == 0 {
			return
		}
		want := naive(shard)
		records, s, err := scan(shard)
		var r *format.RefusedError
		if want.Refused {
			require.ErrorAs(t, err, &r)
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.Records, records)
		require.Equal(t, want.Damaged, s.Damage != nil, "%v", s.Damage)
		if len(records) > 0 {
			require.Equal(t, want.Kind, s.Kind)
			require.Zero(t, len(ofKind(t, s.Kind).Prologue(7))%64)
		}
	})
}

// For each header NumPy prints the rows and the bytes of a row, or that it can't read it.
const readHeaders = `
import base64, io, sys
import numpy as np
from numpy.lib import format
for line in sys.stdin:
    f = io.BytesIO(base64.b64decode(line))
    try:
        read = getattr(format, "read_array_header_1_0") if format.read_magic(f) == (1, 0) else lambda f: format._read_array_header(f, (f.getvalue()[6], 0))
        shape, fortran, dtype = read(f)
        print(shape[0], int(np.prod(shape[1:], dtype=object)) * dtype.itemsize if shape[0] else 0, f.tell())
    except Exception as e:
        print("no:", type(e).__name__, str(e).split("\n")[0][:100])
`

func TestNumPyReadsEveryAcceptedHeaderAlike(t *testing.T) {
	var base [][]byte
	for _, g := range goldens(t) {
		base = append(base, g.bytes)
	}
	slices.SortFunc(base, bytes.Compare)
	r := rand.New(rand.NewPCG(1, 2))
	var shards [][]byte
	var lines bytes.Buffer
	for range 20000 {
		b := bytes.Clone(base[r.IntN(len(base))])
		end := bytes.IndexByte(b, '}')
		for range 1 + r.IntN(2) {
			at := 10 + r.IntN(end-10)
			switch r.IntN(4) {
			case 0:
				b[at] ^= 1 << r.IntN(8)
			case 1: // another byte of the same header
				b[at] = b[10+r.IntN(end-10)]
			case 2:
				const others = "0123456789<>|=bBiufcmMSUV[](){}'\", TrueFalse\\L#-_"
				b[at] = others[r.IntN(len(others))]
			default: // swapped, which preserves the length before it
				b[at], b[at+1] = b[at+1], b[at]
			}
		}
		shards = append(shards, b)
		fmt.Fprintln(&lines, base64.StdEncoding.EncodeToString(b))
	}
	read := 0
	answers := strings.Split(formattest.NumPy(t, "", readHeaders, lines.Bytes()), "\n")
	for i, b := range shards {
		records, s, err := scan(b)
		if err != nil || len(records) == 0 {
			continue
		}
		read++
		var rows, rowBytes, at int64
		_, err = fmt.Sscanf(answers[i], "%d %d %d", &rows, &rowBytes, &at)
		require.NoError(t, err, "%q is read here, and NumPy says %s", b[10:], answers[i])
		require.Equal(t, rowBytes, records[0].SizeBytes, "%q", b)
		require.Equal(t, at, records[0].OffsetBytes)
		if s.Damage == nil {
			require.Equal(t, rows, int64(len(records)))
		}
	}
	require.Greater(t, read, 500)
}

func TestNumPyLoadsStreamsOfEveryKind(t *testing.T) {
	var lines bytes.Buffer
	var want strings.Builder
	for name, g := range goldens(t) {
		if _, is := refused[name]; is || g.Rows == 0 {
			continue
		}
		_, s, err := scan(g.bytes)
		require.NoError(t, err)
		for _, n := range []int{0, 1, g.Rows} {
			data := g.bytes[len(g.bytes)-g.Rows*int(g.RowBytes):][:n*int(g.RowBytes)]
			stream := append(ofKind(t, s.Kind).Prologue(uint64(n)), data...)
			fmt.Fprintln(&lines, base64.StdEncoding.EncodeToString(g.bytes)+" "+base64.StdEncoding.EncodeToString(stream))
			fmt.Fprintln(&want, n)
		}
	}
	require.Equal(t, want.String(), formattest.NumPy(t, "", `
import base64, io, sys
import numpy as np
for line in sys.stdin:
    shard, stream = (np.load(io.BytesIO(base64.b64decode(p))) for p in line.split())
    assert stream.dtype == shard.dtype and stream.shape[1:] == shard.shape[1:]
    assert repr(stream.tolist()) == repr(shard[:len(stream)].tolist())
    print(len(stream))
`, lines.Bytes()))
}
