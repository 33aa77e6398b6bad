package zarr

import (
	"cmp"
	"fmt"
	"slices"
)

// CheckRow returns an error if a crop with that origin is not in the region of axes.
func CheckRow(axes []Axis, origin []int64) error {
	if len(origin) != len(axes) {
		return fmt.Errorf("has %d numbers, and the array has %d dimensions", len(origin), len(axes))
	}
	for d, a := range axes {
		last := a.End - a.Extent()
		if a.Wrap {
			last = a.Length - 1
		}
		if origin[d] < a.Begin || origin[d] > last {
			return fmt.Errorf("%s: a crop from %d to %d is not inside the region %d:%d", a.Name, origin[d], origin[d]+a.Extent(), a.Begin, a.End)
		}
	}
	return nil
}

// ListOrder returns the rows of a list of origins in the order in which their crops are numbered:
// by the chunk that holds the origin, in the bisection order of chunks, and then by row. origins
// has len(axes) numbers for each row, row after row; all are in the array.
func ListOrder(axes []Axis, origins []int64) ([]int64, error) {
	dims := len(axes)
	var counts, edges, chunk []int64
	for _, a := range axes {
		counts = append(counts, (a.Length+a.Edge-1)/a.Edge)
		edges = append(edges, a.Edge)
	}
	order, err := NewBisection(counts, edges, edges)
	if err != nil || dims == 0 {
		return nil, err
	}
	type row struct {
		rank uint64
		row  int64
	}
	rows := make([]row, len(origins)/dims)
	chunk = make([]int64, dims)
	for i := range rows {
		for d := range chunk {
			chunk[d] = origins[i*dims+d] / edges[d]
		}
		rows[i] = row{order.Number(chunk), int64(i)}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.row, b.row)) })
	numbers := make([]int64, len(rows))
	for i, r := range rows {
		numbers[i] = r.row
	}
	return numbers, nil
}
