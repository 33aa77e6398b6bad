package blocking

// Queue is a first-in-first-out list that reuses its memory. The zero value is empty.
type Queue[T any] struct {
	items []T
	head  int
}

// Len returns the number of items.
func (q *Queue[T]) Len() int { return len(q.items) - q.head }

// Push appends items.
func (q *Queue[T]) Push(items ...T) {
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, items...)
}

// First returns the oldest item, which is valid until the next Push or Pop. The queue must not be
// empty.
func (q *Queue[T]) First() *T { return &q.items[q.head] }

// Pop removes and returns the oldest item. The queue must not be empty.
func (q *Queue[T]) Pop() T {
	var none T
	item := q.items[q.head]
	q.items[q.head] = none
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return item
}
