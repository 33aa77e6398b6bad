package fs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// readOf is one read, answered before the next one begins.
func readOf(m *mark, p *progress, off, end int64) {
	p.begin()
	m.sent(p, off, end, 0)
}

func TestMarkFollowsOpenReader(t *testing.T) {
	mountsNothing(t)
	type event struct {
		handle   int
		off, end int64 // end 0: closed
		mark     int64
		reader   int // 0 for none
	}
	for _, c := range []struct {
		name   string
		events []event
	}{
		{"a program that reads from front to back", []event{{1, 0, 10, 10, 1}, {1, 10, 20, 20, 1}}},
		{"a seek forward counts as read", []event{{1, 0, 10, 10, 1}, {1, 500, 510, 510, 1}}},
		{"a seek back moves nothing", []event{{1, 0, 10, 10, 1}, {1, 2, 8, 10, 1}}},
		{"a look at the end is no reader", []event{{1, 90, 100, 0, 0}, {2, 0, 10, 10, 2}}},
		{"what was looked at before the reading from the front does not count", []event{{1, 90, 100, 0, 0}, {1, 0, 10, 10, 1}}},
		{"another handle moves nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 50, 10, 1}, {2, 10, 50, 10, 1}}},
		{"a new handle goes on where the reader closed", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 10, 20, 20, 2}}},
		{"a handle that starts behind the mark waits", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 11, 20, 10, 0}, {3, 9, 12, 12, 3}}},
		{"closing another handle changes nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 0, 10, 1}, {1, 10, 12, 12, 1}}},
		{"somebody looks at all of it before the training",
			[]event{{1, 0, 400, 400, 1}, {1, 0, 0, 400, 0}, {2, 0, 10, 10, 2}, {2, 10, 100, 100, 2}, {2, 0, 0, 400, 0}}},
		{"somebody looks while the training has it open",
			[]event{{1, 0, 10, 10, 1}, {2, 0, 400, 10, 1}, {2, 0, 0, 10, 1}, {1, 10, 20, 20, 1}, {1, 0, 0, 20, 0}}},
		{"somebody looks after the training",
			[]event{{1, 0, 100, 100, 1}, {1, 0, 0, 100, 0}, {2, 0, 10, 10, 2}, {2, 0, 0, 100, 0}}},
		{"a training that began while somebody looked goes on when the other has closed",
			[]event{{1, 0, 300, 300, 1}, {2, 0, 50, 300, 1}, {1, 300, 400, 400, 1}, {1, 0, 0, 400, 0}, {2, 50, 60, 60, 2}, {2, 60, 70, 70, 2}}},
		{"somebody who is further when the training ends moves nothing",
			[]event{{1, 0, 50, 50, 1}, {2, 0, 300, 50, 1}, {1, 0, 0, 50, 0}, {2, 300, 400, 50, 0}, {2, 0, 0, 50, 0}}},
		{"an onlooker that is behind does not jump",
			[]event{{1, 0, 50, 50, 1}, {2, 0, 10, 50, 1}, {1, 0, 0, 50, 0}, {2, 80, 90, 50, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m mark
			handles := map[int]*progress{1: {}, 2: {}, 3: {}}
			for i, e := range c.events {
				if e.end == 0 {
					m.closed(handles[e.handle])
				} else {
					readOf(&m, handles[e.handle], e.off, e.end)
				}
				require.EqualValues(t, e.mark, m.bytes(), "after event %d", i)
				require.True(t, m.reader == handles[e.reader], "reader after event %d", i)
			}
		})
	}
}

func TestReadingStartsAtFirstRecord(t *testing.T) {
	mountsNothing(t)
	var m mark
	var look, train progress
	m.furthest = 400
	look.begin()
	m.sent(&look, 129, 140, 128)
	require.EqualValues(t, 400, m.bytes())
	train.begin()
	m.sent(&train, 128, 140, 128) // as if numpy's header was skipped
	require.EqualValues(t, 140, m.bytes())
}

// naiveMark is the definition of the mark (lsiofs help tree), evaluated on the whole history at
// each step.
type naiveMark struct {
	events []naiveEvent
}

type naiveEvent struct {
	handle   int
	off, end int64 // end 0: closed
}

// state returns the mark and the reader after all events, 0 for none.
func (n *naiveMark) state() (bytes int64, reader int) {
	came := int64(0)       // the furthest that any reader came
	since := map[int]int{} // for each handle, the event since which what it was sent counts
	sentSince := func(h, until int) (end int64) {
		from, started := since[h]
		if !started {
			return -1
		}
		for _, e := range n.events[from : until+1] {
			if e.handle == h {
				end = max(end, e.end)
			}
		}
		return end
	}
	for i, e := range n.events {
		switch before := sentSince(e.handle, i-1); {
		case e.end == 0:
			if delete(since, e.handle); reader == e.handle {
				reader = 0
			}
			continue
		case reader == e.handle:
		case e.off == 0: // from the front
			since[e.handle] = i
			if reader == 0 {
				reader = e.handle
			}
		case reader != 0: // another handle moves the mark
		case e.off <= came && e.end > came: // across the mark
			since[e.handle], reader = i, e.handle
		case before >= 0 && before <= came && e.end <= came: // reads on, behind a reader that is gone
			reader = e.handle
		}
		if reader == e.handle {
			came = max(came, sentSince(e.handle, i))
		}
	}
	if reader == 0 {
		return came, 0
	}
	return sentSince(reader, len(n.events)-1), reader
}

func TestTheMarkEqualsItsDefinition(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		var m mark
		var naive naiveMark
		handles := map[int]*progress{}
		for range rapid.IntRange(1, 50).Draw(t, "events") {
			h := rapid.IntRange(1, 4).Draw(t, "handle")
			if handles[h] == nil {
				handles[h] = &progress{}
			}
			e := naiveEvent{handle: h}
			if rapid.IntRange(0, 5).Draw(t, "closes") == 0 {
				m.closed(handles[h])
				delete(handles, h)
			} else {
				if rapid.Bool().Draw(t, "not from the front") {
					e.off = rapid.Int64Range(0, 40).Draw(t, "off")
				}
				e.end = e.off + rapid.Int64Range(1, 20).Draw(t, "bytes")
				readOf(&m, handles[h], e.off, e.end)
			}
			naive.events = append(naive.events, e)
			bytes, reader := naive.state()
			if m.bytes() != bytes || m.reader != handles[reader] {
				t.Fatalf("the mark is %d, not %d, or its reader is not %d, after %v", m.bytes(), bytes, reader, naive.events)
			}
			if m.bytes() > m.furthest {
				t.Fatalf("the mark, %d, is beyond the furthest, %d", m.bytes(), m.furthest)
			}
		}
	})
}

// If one reader at a time continues where the last one ended, the mark is what the readers were
// sent, whatever other handles do.
func TestOnlookersNeverMoveMark(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		var m mark
		var reader progress
		var others [4]progress
		readOf(&m, &reader, 0, 1)
		at := int64(1)
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			if rapid.Bool().Draw(t, "onlooker") {
				off := rapid.Int64Range(0, 100).Draw(t, "off")
				readOf(&m, &others[rapid.IntRange(0, 3).Draw(t, "who")], off, off+rapid.Int64Range(1, 100).Draw(t, "n"))
			} else {
				n := rapid.Int64Range(1, 10).Draw(t, "n")
				readOf(&m, &reader, at, at+n)
				at += n
			}
			if m.bytes() != at {
				t.Fatalf("mark is %d, the reader was sent %d", m.bytes(), at)
			}
		}
	})
}

// As with threads, AIO and io_uring: the read at the mark is answered last.
func TestConcurrentReadsCountInAnyOrderOfCompletion(t *testing.T) {
	mountsNothing(t)
	var m mark
	var p progress
	readOf(&m, &p, 90, 100) // a look at the end, which is over first
	require.EqualValues(t, 0, m.bytes())
	for range 4 { // of [0, 10), [20, 30), [30, 40), which fails, and [10, 20)
		p.begin()
	}
	m.sent(&p, 20, 30, 0)
	p.ended(0)
	m.sent(&p, 10, 20, 0)
	require.EqualValues(t, 0, m.bytes())
	m.sent(&p, 0, 10, 0)
	require.EqualValues(t, 30, m.bytes())
	readOf(&m, &p, 30, 40)
	require.EqualValues(t, 40, m.bytes())
	require.EqualValues(t, 30, p.last)
}
