package zarr

// List holds the origins of one cube's crops, given one by one.
type List struct {
	// SHA256 is the hash of the file, in hex.
	SHA256 string
	// Fields are the origins in each field, row after row. If they can be derived from the first
	// field's, only those are there.
	Fields [][]int64
	// Dims is the length of a row, for each of Fields.
	Dims []int
	// Numbers are the indices of the rows in the file.
	Numbers []int64
}

func (l *List) rows() int64 { return int64(len(l.Numbers)) }

// origin returns the origin of row i in field k.
func (l *List) origin(k int, i int64) []int64 {
	n := int64(l.Dims[k])
	return l.Fields[k][i*n : (i+1)*n]
}
