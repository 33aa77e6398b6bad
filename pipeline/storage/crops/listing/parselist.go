package listing

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// listField is a field that a list has origins for.
type listField struct {
	name string
	dims int
}

// column is a run of numbers in the rows of a file. If field is -1, it is the number of the cube.
type column struct {
	field, at, count int
}

// parseList reads an npy file of origins, for each of the cubes: int64 in C order, either of shape
// (N, D) with origins in the first field, or a structured array that has D numbers for each of the
// fields. For several cubes there is another number, which selects the cube: the first column, or a
// field "cube". b is the whole file.
func parseList(b []byte, fields []listField, cubes int) ([]*zarr.List, error) {
	kind, rows, rowBytes, from, err := npy.Framing{}.Describe(b, int64(len(b)))
	if err != nil {
		return nil, err
	}
	columns, structured, err := columnsOf(kind, fields, cubes)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	lists := make([]*zarr.List, cubes)
	for i := range lists {
		lists[i] = &zarr.List{SHA256: hex.EncodeToString(sum[:])}
		for k := range fields {
			if k == 0 || structured {
				lists[i].Fields, lists[i].Dims = append(lists[i].Fields, nil), append(lists[i].Dims, fields[k].dims)
			}
		}
	}
	for n := range rows {
		row := b[from+n*rowBytes:][:rowBytes]
		number := func(i int) int64 { return int64(binary.LittleEndian.Uint64(row[8*i:])) }
		cube := int64(0)
		for _, c := range columns {
			if c.field < 0 {
				cube = number(c.at)
			}
		}
		if cube < 0 || cube >= int64(cubes) {
			return nil, fmt.Errorf("row %d is of store %d: there are %d, numbered from 0 in the order of their paths", n, cube, cubes)
		}
		l := lists[cube]
		l.Numbers = append(l.Numbers, n)
		for _, c := range columns {
			for i := range c.count {
				if c.field >= 0 {
					l.Fields[c.field] = append(l.Fields[c.field], number(c.at+i))
				}
			}
		}
	}
	return lists, nil
}

// plainRows and structuredField match the kinds of package npy that are read.
var (
	plainRows       = regexp.MustCompile(`^'<i8' \((\d+),?\)$`)
	structuredField = regexp.MustCompile(`^\('([^']*)', '<i8'(?:, \((\d+),?\)|, (\d+))?\)(?:, )?`)
)

// columnsOf returns where the numbers are in a file's rows.
func columnsOf(kind string, fields []listField, cubes int) (columns []column, structured bool, err error) {
	if m := plainRows.FindStringSubmatch(kind); m != nil {
		has, _ := strconv.Atoi(m[1])
		want := fields[0].dims
		if cubes > 1 {
			columns = append(columns, column{-1, 0, 1})
			want++
		}
		if has != want {
			return nil, false, fmt.Errorf("its rows have %d numbers, and need %d: %s", has, want, wanted(fields, cubes))
		}
		return append(columns, column{0, want - fields[0].dims, fields[0].dims}), false, nil
	}
	wrong := fmt.Errorf("it holds %s: origins are %s", kind, wanted(fields, cubes))
	inner, ok := strings.CutPrefix(kind, "[")
	end := strings.LastIndex(inner, "]")
	if !ok || end < 0 || strings.Trim(inner[end+1:], " (),") != "" {
		return nil, false, wrong
	}
	at := 0
	for inner = inner[:end]; inner != ""; {
		m := structuredField.FindStringSubmatch(inner)
		if m == nil {
			return nil, false, wrong
		}
		inner = inner[len(m[0]):]
		n := 1
		if text := m[2] + m[3]; text != "" {
			if n, err = strconv.Atoi(text); err != nil || n > zarr.MaxDims {
				return nil, false, wrong
			}
		}
		k := slices.IndexFunc(fields, func(f listField) bool { return f.name == m[1] })
		switch {
		case m[1] == "cube" && n == 1 && k < 0:
			columns = append(columns, column{-1, at, 1})
		case k < 0 || fields[k].dims != n || slices.ContainsFunc(columns, func(c column) bool { return c.field == k }):
			return nil, false, wrong
		default:
			columns = append(columns, column{k, at, n})
		}
		at += n
	}
	of := 0
	for _, c := range columns {
		if c.field >= 0 {
			of++
		}
	}
	if of != len(fields) || cubes > 1 && len(columns) == of {
		return nil, false, wrong
	}
	return columns, true, nil
}

// wanted describes the format of a list of origins.
func wanted(fields []listField, cubes int) string {
	first := ""
	if cubes > 1 {
		first = "the store's number and "
	}
	text := fmt.Sprintf("int64 of shape (N, %d): %sthe origin in each dimension", fields[0].dims+min(cubes-1, 1), first)
	if len(fields) > 1 {
		var names []string
		for _, f := range fields {
			names = append(names, fmt.Sprintf("('%s', '<i8', (%d,))", f.name, f.dims))
		}
		if cubes > 1 {
			names = append([]string{"('cube', '<i8')"}, names...)
		}
		text += ", or of dtype [" + strings.Join(names, ", ") + "]"
	}
	return text
}
