package zarr

import "strconv"

// Keys maps an object's place in the array's grid of objects to its path relative to the array,
// such as "c/0/13/5" or "0.13.5".
type Keys struct {
	// Prefixed is v3's default: paths begin with c.
	Prefixed bool
	// Separator is '/' or '.'.
	Separator byte
}

// Append appends the path of the object at place to dst.
func (k Keys) Append(dst []byte, place []int64) []byte {
	if k.Prefixed {
		dst = append(dst, 'c')
	} else if len(place) == 0 {
		return append(dst, '0')
	}
	for i, n := range place {
		if i > 0 || k.Prefixed {
			dst = append(dst, k.Separator)
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return dst
}

// Parse writes the place of the object with a path into place, and reports whether the path is that
// of an object in a grid of counts. Every object has only one path: "00.1" is not one. place and
// counts have an entry for each dimension of the array.
func (k Keys) Parse(place []int64, path string, counts []int64) bool {
	if len(counts) == 0 {
		return k.Prefixed && path == "c" || !k.Prefixed && path == "0"
	}
	if k.Prefixed {
		if len(path) < 2 || path[0] != 'c' || path[1] != k.Separator {
			return false
		}
		path = path[2:]
	}
	for d := range counts {
		n, digits := int64(0), 0
		for digits < len(path) && path[digits] >= '0' && path[digits] <= '9' {
			if n = n*10 + int64(path[digits]-'0'); n >= counts[d] || digits > 0 && path[0] == '0' {
				return false
			}
			digits++
		}
		if digits == 0 || n >= counts[d] {
			return false
		}
		place[d], path = n, path[digits:]
		if d == len(counts)-1 {
			return path == ""
		}
		if path == "" || path[0] != k.Separator {
			return false
		}
		path = path[1:]
	}
	return false
}
