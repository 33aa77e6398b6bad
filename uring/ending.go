package uring

// ending are requests that have been read by one goroutine, and whose files are still to be
// verified. One verification of a file serves all of its reads that ended before: it costs a
// quarter of a small read.
type ending struct {
	reads []ended
	bytes int
}

type ended struct {
	request *Request
	n       int
	err     error
}

func (e *ending) add(r *Request, n int, err error) {
	e.reads = append(e.reads, ended{r, n, err})
	e.bytes += n
}

// complete verifies and completes all of them.
func (e *ending) complete(c *counters) {
	// A File stays in use until the last of its requests is done, so last remains valid.
	var last *File
	var changed error
	for i, d := range e.reads {
		e.reads[i] = ended{}
		if f := d.request.File; f != nil && f.verify != nil {
			if f != last {
				last, changed = f, f.verify()
			}
			if changed != nil {
				d.err = changed
			}
		}
		c.complete(d.request, d.n, d.err)
	}
	e.reads, e.bytes = e.reads[:0], 0
}
