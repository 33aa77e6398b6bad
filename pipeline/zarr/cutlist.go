package zarr

// List are origins that were given one by one, of one cube.
type List struct {
	// SHA256 is that of the file they come from, in hex.
	SHA256 string
	// Fields are the origins in each field, or in the first one alone, if the others follow from
	// it; one row behind the other.
	Fields [][]int64
	// Dims are the numbers of a row, of each of Fields.
	Dims []int
	// Numbers are those of the rows in the file.
	Numbers []int64
}

func (l *List) rows() int64 { return int64(len(l.Numbers)) }

// origin is that of row i in field k.
func (l *List) origin(k int, i int64) []int64 {
	n := int64(l.Dims[k])
	return l.Fields[k][i*n : (i+1)*n]
}
