package uring

// job is a request on its way through an engine.
type job struct {
	request *Request
	n       int  // bytes read so far
	direct  bool // the rest is read without the page cache
}

// off is where the rest begins in the file.
func (j *job) off() int64 { return j.request.OffsetBytes + int64(j.n) }

// rest is the memory that is still to be filled.
func (j *job) rest() []byte { return j.request.Buf[j.n:] }

// queue is a first-in-first-out list of jobs. It takes 24 bytes per request, besides the request
// and the buffer that the submitter holds anyway.
type queue struct {
	items []job
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(jobs ...job) {
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, jobs...)
}

// first is the oldest job; the queue must not be empty.
func (q *queue) first() *job { return &q.items[q.head] }

// pop removes and returns the oldest job; the queue must not be empty.
func (q *queue) pop() job {
	j := q.items[q.head]
	q.items[q.head] = job{}
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return j
}
