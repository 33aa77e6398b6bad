package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// threeGroups returns a file of three row groups of an int and a string, whose pages have CRCs.
func threeGroups(c codec) []byte {
	root := &field{fields: []*field{{name: "n", phys: physInt64}, {name: "s", phys: physBytes, optional: true}}}
	var groups [][]any
	for g := range 3 {
		var all []any
		for i := range 50 {
			all = append(all, []any{int64(100*g + i), fmt.Sprintf("row %d of group %d", i, g)})
		}
		groups = append(groups, all)
	}
	w := &fileWriter{draw: rand.New(rand.NewPCG(1, 1)), codec: c, pageBytes: 200, crc: true}
	return w.write(root, groups)
}

// Damage of a row group is an error that names it, and has no effect on the others.
func TestDamageIsOfOneRowGroup(t *testing.T) {
	for _, c := range []codec{uncompressed, codecSnappy, codecZstd} {
		data := threeGroups(c)
		whole, err := openShard(data, "", Options{})
		require.NoError(t, err)
		for at := whole.file.groups[1].rawFrom; at < whole.file.groups[1].rawTo; at++ {
			changed := bytes.Clone(data)
			changed[at] ^= 0x10
			s, err := openShard(changed, "", Options{BlockBytes: 100})
			require.NoError(t, err)
			var damage *DamageError
			for g := range 3 {
				n := 0
				err := s.each(g, Point{}, func(*rows.Batch, int) error { n++; return nil })
				if g != 1 {
					require.NoError(t, err, "byte %d", at)
					require.Equal(t, 50, n)
					continue
				}
				if err == nil { // what a page's statistics or its encoding of levels are is not always used
					continue
				}
				require.ErrorAs(t, err, &damage, "byte %d", at)
				require.Equal(t, 1, damage.Group)
				require.Contains(t, []string{"n", "s"}, damage.Column)
				require.GreaterOrEqual(t, damage.RawOffset, whole.file.groups[1].rawFrom)
				_, again := s.cursor.Next()
				require.Equal(t, err, again, "errors are sticky")
			}
		}
	}
}

func TestPagesAreCheckedByTheirCRC(t *testing.T) {
	data := threeGroups(uncompressed)
	at := bytes.Index(data, []byte("row 7 of group 1"))
	data[at] = 'x'
	s, err := openShard(data, "", Options{})
	require.NoError(t, err)
	err = s.each(1, Point{}, func(*rows.Batch, int) error { return nil })
	require.ErrorContains(t, err, "row group 1, column s")
	require.ErrorContains(t, err, "a page does not match its CRC")
	require.NoError(t, s.each(2, Point{}, func(*rows.Batch, int) error { return nil }))
	require.Positive(t, s.cursor.Stats().PagesWithCRC)
	require.Zero(t, s.cursor.Stats().PagesWithoutCRC)
}

type failing struct {
	data []byte
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.from && at < int64(len(f.data))-1000 {
		return 0, f.err
	}
	return copy(p, f.data[at:]), nil
}

// Errors of the storage are not damage.
func TestErrorsOfReads(t *testing.T) {
	data := threeGroups(codecSnappy)
	broken := errors.New("the disk is gone")
	for from := int64(0); from < int64(len(data))-1000; from += 37 {
		f, err := Open(bytes.NewReader(data), int64(len(data)))
		require.NoError(t, err)
		columns, err := rows.Resolve(f.Schema, nil)
		require.NoError(t, err)
		s, err := f.Select(columns)
		require.NoError(t, err)
		c := s.NewCursor(failing{data, from, broken}, Options{BlockBytes: 50})
		seen := false
		for g := range f.Groups() {
			err := c.Open(g, Point{})
			for err == nil {
				_, err = c.Next()
			}
			seen = seen || err == broken
			require.True(t, err == io.EOF || err == broken, "%v", err)
		}
		require.True(t, seen)
	}
	_, err := Open(failing{data, 0, broken}, 5000)
	require.ErrorIs(t, err, broken)
	_, err = Open(bytes.NewReader(data[:len(data)-5]), int64(len(data)))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the file is shorter than it was")
}

// A page that decodes to more than is permitted is refused, and the memory is not taken.
func TestMemoryIsBounded(t *testing.T) {
	root := &field{fields: []*field{{name: "zeros", phys: physBytes}}}
	for _, c := range []codec{codecSnappy, codecGzip, codecZstd, codecBrotli, codecLZ4Raw} {
		w := &fileWriter{draw: rand.New(rand.NewPCG(1, 1)), codec: c, pageBytes: 1 << 30}
		data := w.write(root, [][]any{{[]any{string(make([]byte, 8<<20))}}, {[]any{"x"}}})
		s, err := openShard(data, "", Options{MaxBytes: 4 << 20})
		require.NoError(t, err)
		err = s.each(0, Point{}, func(*rows.Batch, int) error { return nil })
		var refusal *rows.RefusedError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, "column zeros: decoding its pages takes more memory than --max-record permits", refusal.Error())
		require.LessOrEqual(t, s.cursor.MemoryBytes(), int64(4<<20))
		n := 0
		require.NoError(t, s.each(1, Point{}, func(*rows.Batch, int) error { n++; return nil }))
		require.Equal(t, 1, n)
		out, err := lines(data, "", Options{MaxBytes: 32 << 20})
		require.NoError(t, err)
		require.Greater(t, len(out), 8<<20)
	}
}

func TestFilesThatAreNotRead(t *testing.T) {
	data := threeGroups(uncompressed)
	for text, change := range map[string]func(b []byte) []byte{
		"the file has 11 bytes, too few for Parquet":                 func([]byte) []byte { return []byte("PAR1PARPAR1") },
		`the file ends in "PAR2", not in "PAR1": it may be cut off`:  func(b []byte) []byte { b[len(b)-1] = '2'; return b },
		"the file is encrypted":                                      func(b []byte) []byte { b[len(b)-1] = 'E'; return b },
		"and the file " + fmt.Sprint(len(data)):                      func(b []byte) []byte { b[len(b)-6] = 1; b[len(b)-7] = 200; return b },
		"footer, byte " + fmt.Sprint(len(data)-8) + " of the file: ": func(b []byte) []byte { b[len(b)-5] = 255; return b },
	} {
		changed := change(bytes.Clone(data))
		_, err := Open(bytes.NewReader(changed), int64(len(changed)))
		require.ErrorContains(t, err, text)
	}
}

// Levels that no tree of values has are damage, although each of them is one of the schema.
func TestLevelsThatContradictEachOther(t *testing.T) {
	// A list of a list: definition level 0 is an empty outer list, 1 an empty inner one, 2 a value.
	info := &leafInfo{phys: physInt32, width: 4, maxRep: 2, maxDef: 2, slotDef: 2, elemDefs: []uint8{1, 2}}
	for _, c := range []struct {
		rep, def []uint8
		ok       bool
	}{
		{[]uint8{0, 2, 1, 0, 0}, []uint8{2, 2, 1, 0, 1}, true},
		{[]uint8{0, 1}, []uint8{2, 0}, false}, // an element of the outer list that is not there
		{[]uint8{0, 1}, []uint8{0, 2}, false}, // an element after an empty list
		{[]uint8{0, 2}, []uint8{1, 2}, false}, // an element after an empty inner list
		{[]uint8{0, 2}, []uint8{2, 1}, false},
		{[]uint8{1, 0}, []uint8{2, 2}, false}, // it begins inside of a row
	} {
		l := &leaf{leafInfo: info, n: len(c.rep), rep: c.rep, def: c.def, mem: &memory{most: 1000}}
		l.whole = bytes.Count(c.def, []byte{2}) == len(c.def)
		err := l.checkLevels(0, pageHeader{})
		require.Equal(t, c.ok, err == nil, "%v: %v", c, err)
	}
}

// A value can't have more in common with the one before it than that one has.
func TestPrefixesAreChecked(t *testing.T) {
	w := &fileWriter{draw: rand.New(rand.NewPCG(1, 1))}
	for prefix, ok := range map[int64]bool{2: true, 3: false, -1: false} {
		b := w.deltas(nil, []int64{0, prefix}, true)
		b = append(w.deltas(b, []int64{2, 1}, true), "abc"...)
		l := &leaf{leafInfo: &leafInfo{phys: physBytes}, mem: &memory{most: 1000}}
		err := l.decodeValues(encDeltaBytes, b, 2)
		require.Equal(t, ok, err == nil, "%v", err)
		if ok {
			require.Equal(t, "ababc", string(l.val.bytes))
		}
	}
}

// A size that no bytes can decode to is found before memory is taken.
func TestSizesThatAreNotPossible(t *testing.T) {
	for _, c := range []codec{codecSnappy, codecGzip, codecZstd, codecLZ4, codecLZ4Raw} {
		mem := &memory{most: 1 << 30}
		l := &leaf{leafInfo: &leafInfo{phys: physBytes}, mem: mem, c: chunk{codec: c}}
		var buf []byte
		_, err := l.expand(&buf, make([]byte, 100), 1<<29)
		require.ErrorContains(t, err, "can't decompress to")
		require.Zero(t, mem.used)
	}
}
