package crops

// queue is a first-in-first-out list that reuses its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

// front returns the oldest item; there must be one.
func (q *queue[T]) front() T { return q.items[q.head] }

// at returns an item; 0 is the oldest.
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

// pop removes and returns the oldest item; there must be one.
func (q *queue[T]) pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	q.head++
	return x
}
