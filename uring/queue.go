package uring

// queue is a first-in-first-out list of requests. Its memory is 8 bytes a
// request, beside the request and the buffer that the submitter holds anyway.
type queue struct {
	items []*Request
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(requests []*Request) {
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, requests...)
}

// first is the oldest request; the queue must not be empty.
func (q *queue) first() *Request { return q.items[q.head] }

// pop takes the oldest request out; the queue must not be empty.
func (q *queue) pop() *Request {
	r := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return r
}
