package listing

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// origins returns an npy file of a type and rows.
func origins(descr, shape string, numbers ...int64) []byte {
	head := fmt.Sprintf("{'descr': %s, 'fortran_order': False, 'shape': %s, }", descr, shape)
	head += strings.Repeat(" ", 63-(10+len(head))%64) + "\n"
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)))
	b = append(b, head...)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// FuzzOriginLists checks how --crops is read: each row of a file is in one list, with a number
// for each dimension.
func FuzzOriginLists(f *testing.F) {
	f.Add(origins("'<i8'", "(2, 3)", 1, 2, 3, 4, 5, 6), byte(1))
	f.Add(origins("'<i8'", "(2, 4)", 1, 2, 3, 4, 0, 5, 6, -7), byte(2))
	f.Add(origins("[('cube', '<i8'), ('a', '<i8', (3,)), ('b', '<i8', (2,))]", "(1,)", 1, 2, 3, 4, 5, 6), byte(2))
	f.Add(origins("[('b', '<i8', (2,)), ('a', '<i8', (3,))]", "(1,)", 1, 2, 3, 4, 5), byte(1))
	f.Add(origins("'<i8'", "(9223372036854775807, 3)"), byte(1))
	f.Add(origins("'<i8'", "()", 1), byte(1))
	f.Add(origins("'<i8'", "(0, 3)"), byte(1))
	fields := []listField{{"a", 3}, {"b", 2}}
	f.Fuzz(func(t *testing.T, b []byte, cubes byte) {
		n := int(cubes%3) + 1
		for _, some := range [][]listField{fields[:1], fields} {
			lists, err := parseList(b, some, n)
			if err != nil {
				continue
			}
			require.Len(t, lists, n)
			rows := 0
			for _, l := range lists {
				rows += len(l.Numbers)
				require.Equal(t, len(l.Fields), len(l.Dims))
				for k, origins := range l.Fields {
					require.Len(t, origins, len(l.Numbers)*some[k].dims)
				}
			}
			require.LessOrEqual(t, rows*24, len(b))
		}
	})
}
