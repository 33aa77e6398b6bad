//go:build !amd64

package lc0

// expand writes an element of elementBytes, 0 or 1, for each bit of planes, the highest bit of a
// byte first.
func expand(dst, planes []byte, elementBytes int) { expandByTable(dst, planes, elementBytes) }
