//go:build !amd64

package lc0

// patterns are for processors with an expand of their own.
type patterns struct{}

func newPatterns() patterns { return patterns{} }

// expand writes an element of elementBytes, 0 or 1, for each bit of planes, the highest bit of a
// byte first.
func (t *tables) expand(dst, planes []byte, elementBytes int) {
	t.expandByTable(dst, planes, elementBytes)
}
