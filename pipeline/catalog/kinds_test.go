package catalog

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// rowsOf is an npy array of n rows of 8 bytes, each of four elements of a dtype.
func rowsOf(n int, descr string) []byte {
	text := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': (%d, 4), }\n", descr, n)
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(text)))
	return append(append(b, text...), make([]byte, 8*n)...)
}

func TestCatalogFormatHasKindOfShards(t *testing.T) {
	w := newWorld(t)
	w.write("0.npy", rowsOf(0, "'<f2'")) // has no records, so its kind does not matter
	w.write("a.npy", rowsOf(5, "\"<i2\""))
	w.write("b.npy.gz", gz(rowsOf(6, "'<i2'")))
	check := func(c *Catalog) {
		require.Equal(t, `"<i2" (4,)`, c.Kind(), "as the first shard with records writes it")
		require.EqualValues(t, 11, c.Records())
		require.Equal(t, ".npy", c.StreamExtension())
		require.Contains(t, string(c.Unpacker().(format.Framer).Prologue(11)), `{'descr': "<i2", 'fortran_order': False, 'shape': (11, 4), }`)
	}
	check(w.mustOpen())
	require.Zero(t, w.readsOf(func() { check(w.mustOpen()) }), "the stored index has it")
	w.write("c.npy", rowsOf(0, "'<f8'"))
	c := w.mustOpen()
	require.EqualValues(t, 4, c.Shards())
	check(c)
}

func TestFormatsWithoutKindsHaveNone(t *testing.T) {
	w := newWorld(t)
	w.write("a.jsonl", linesOf(9, "a"))
	c := w.mustOpen()
	require.Empty(t, c.Kind())
	require.Empty(t, c.image.Blob(0).Kind())
}

func TestFirstShardOfOtherKindIsNamed(t *testing.T) {
	for _, policy := range []func(*Config){func(*Config) {}, skipping} {
		w := newWorld(t)
		w.write("0.npy", rowsOf(0, "'>i2'"))
		w.write("a.npy", rowsOf(3, "'<i2'"))
		w.write("b.npy", rowsOf(3, "\"<i2\""))
		w.mustOpen(policy)
		w.write("c.npy", rowsOf(3, "'<f2'"))
		w.write("d.npy", rowsOf(3, "'<u2'"))
		for range 2 { // the second time everything except the index comes from what is stored
			_, err := w.open(policy)
			require.ErrorContains(t, err, "shards of two kinds")
			require.ErrorContains(t, err, "a.npy has '<i2' (4,), c.npy has '<f2' (4,)")
			require.ErrorContains(t, err, "with a pattern")
		}
		require.NoError(t, os.Remove(filepath.Join(w.data, "c.npy")))
		_, err := w.open(policy)
		require.ErrorContains(t, err, "a.npy has '<i2' (4,), d.npy has '<u2' (4,)")
		c := w.mustOpen(policy, dataset(filepath.Join(w.data, "[ab].npy")))
		require.EqualValues(t, 6, c.Records())
	}
}

func TestDamagedShardHasKindOfRemainingRecords(t *testing.T) {
	w := newWorld(t)
	w.write("a.npy", rowsOf(3, "'<i2'"))
	b := rowsOf(5, "'<f2'")
	w.write("b.npy", b[:len(b)-9])
	w.write("c.npy", rowsOf(1, "'<f2'")[:30])
	_, err := w.open(skipping)
	require.ErrorContains(t, err, "b.npy has '<f2' (4,)")
	w.write("b.npy", b[:len(b)-40])
	c := w.mustOpen(skipping)
	require.EqualValues(t, 3, c.Records(), "of shards without records no kind is asked")
	require.Len(t, c.Damaged(), 2)
}

func TestLongestKindsAreStored(t *testing.T) {
	w := newWorld(t)
	a := rowsOf(3, "[('"+strings.Repeat("\xe9", 65000)+"', '<i2')]")
	w.write("a.npy", a)
	require.Len(t, w.mustOpen().Kind(), len("[('', '<i2')] (4,)")+2*65000)
}

func TestLongKindsAreShownWhereTheyDiffer(t *testing.T) {
	w := newWorld(t)
	long := func(name string) string {
		s := "["
		for i := range 400 {
			if i == 200 {
				s += "('" + name + "', '<i2'), "
			}
			s += fmt.Sprintf("('field-%d', '|V0'), ", i)
		}
		return s + "]"
	}
	w.write("a.npy", rowsOf(3, long("one")))
	w.write("b.npy", rowsOf(3, long("two")))
	_, err := w.open()
	require.ErrorContains(t, err, "('one', '<i2')")
	require.ErrorContains(t, err, "('two', '<i2')")
	require.Less(t, len(err.Error()), 1500)
}
