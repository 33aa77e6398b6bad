package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Job is a job for a loop: to read the ranges in order, AtOnce at a time.
type Job struct {
	Address Address `json:"address"`
	Ranges  []Range `json:"ranges"`
	AtOnce  int     `json:"at_once"`
	// StopAfter ends the job between two requests; 0: all ranges are read.
	StopAfter time.Duration `json:"stop_after_nanos"`
}

// Done is the result of a job.
type Done struct {
	Bytes    int64         `json:"bytes"`
	Requests int64         `json:"requests"`
	Elapsed  time.Duration `json:"elapsed_nanos"`
	Error    string        `json:"error,omitempty"`
}

// wholeBytes is how much of an object is read at a time if all of it is requested.
const wholeBytes = 1 << 20

// Loop does the jobs from in, one line of JSON each, and writes their results to out. It does what
// any program could do that knew the ranges: it makes requests with net/http's defaults, reads
// their bodies into existing memory, and checks nothing but the status. If to is not nil, it also
// writes what it reads to that pipe, one range after another as they arrive, which is the cost of
// passing the bytes on.
func Loop(ctx context.Context, in io.Reader, out, to io.Writer) error {
	jobs, answers := json.NewDecoder(in), json.NewEncoder(out)
	l := loop{to: to}
	for {
		var j Job
		if err := jobs.Decode(&j); err != nil {
			return ignore(err, io.EOF)
		}
		done, err := l.run(ctx, j)
		if err != nil {
			done.Error = err.Error()
		}
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}

// loop keeps the buffers from one job to the next, because memory that is new to a process is slow
// at first.
type loop struct {
	buffers [][]byte
	to      io.Writer // nil: the bytes are discarded
	writing sync.Mutex
}

// hand writes a range that was read.
func (l *loop) hand(b []byte) error {
	if l.to == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.to.Write(b)
	return err
}

func (l *loop) run(ctx context.Context, j Job) (Done, error) {
	transport := &http.Transport{DisableCompression: true, MaxIdleConns: j.AtOnce, MaxIdleConnsPerHost: j.AtOnce}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.grow(j)
	var next, bytes, requests atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for _, buf := range l.buffers[:j.AtOnce] {
		all.Go(func() {
			for ctx.Err() == nil && (j.StopAfter == 0 || time.Since(began) < j.StopAfter) {
				i := next.Add(1) - 1
				if i >= int64(len(j.Ranges)) {
					return
				}
				n, err := read(ctx, transport, j.Address, j.Ranges[i], buf)
				if err == nil && j.Ranges[i].SizeBytes >= 0 {
					err = l.hand(buf[:n])
				}
				if err != nil {
					cancel(err)
					return
				}
				bytes.Add(n)
				requests.Add(1)
			}
		})
	}
	all.Wait()
	return Done{Bytes: bytes.Load(), Requests: requests.Load(), Elapsed: time.Since(began)}, context.Cause(ctx)
}

// grow makes a buffer for each concurrent request, of the size of the largest range.
func (l *loop) grow(j Job) {
	largest := int64(wholeBytes)
	for _, r := range j.Ranges {
		largest = max(largest, r.SizeBytes)
	}
	if len(l.buffers) >= j.AtOnce && int64(len(l.buffers[0])) >= largest {
		return
	}
	l.buffers = make([][]byte, j.AtOnce)
	for i := range l.buffers {
		l.buffers[i] = make([]byte, largest)
	}
}

// read reads one range, or a whole object piece by piece.
func read(ctx context.Context, transport *http.Transport, at Address, r Range, buf []byte) (int64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL(r.Object), nil)
	if err != nil {
		return 0, err
	}
	wanted := http.StatusOK
	if r.SizeBytes >= 0 {
		wanted = http.StatusPartialContent
		request.Header.Set("Range", "bytes="+strconv.FormatInt(r.OffsetBytes, 10)+"-"+strconv.FormatInt(r.OffsetBytes+r.SizeBytes-1, 10))
	}
	resp, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != wanted {
		return 0, fmt.Errorf("%s: %s", request.URL, resp.Status)
	}
	if r.SizeBytes < 0 {
		// io.Discard's own ReadFrom would read 8 KiB at a time.
		return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buf)
	}
	if _, err := io.ReadFull(resp.Body, buf[:r.SizeBytes]); err != nil {
		return 0, fmt.Errorf("%s: %w", request.URL, err)
	}
	// Reads the body's end, so that the connection is used again.
	if _, err := resp.Body.Read(buf[:1]); err != io.EOF {
		return 0, fmt.Errorf("%s: the body does not end: %w", request.URL, err)
	}
	return r.SizeBytes, nil
}
