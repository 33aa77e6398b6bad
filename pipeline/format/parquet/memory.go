package parquet

import "github.com/lsiofs/lsiofs/pipeline/rows"

// memory counts the buffers of a cursor, and bounds them.
type memory struct{ used, most int64 }

// grow returns s, or a copy of it, with room for n elements of size bytes.
func grow[T any](m *memory, s []T, n int, size int64) ([]T, error) {
	if n <= cap(s) {
		return s, nil
	}
	free := (m.most - m.used) / size
	more := int64(n - cap(s))
	if more > free {
		return s, &rows.RefusedError{Reason: errMemory}
	}
	want := cap(s) + int(min(free, more+int64(n/8)))
	m.used += int64(want-cap(s)) * size
	out := make([]T, len(s), want)
	copy(out, s)
	return out, nil
}

const errMemory = "decoding its pages takes more memory than --max-record permits"
