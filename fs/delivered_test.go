package fs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestMarkFollowsTheHandleThatCoversIt(t *testing.T) {
	mountsNothing(t)
	type event struct {
		handle   uint64
		off, end int64 // end 0: closed
		mark     int64
		reader   uint64
	}
	for _, c := range []struct {
		name   string
		events []event
	}{
		{"a program that reads from front to back", []event{{1, 0, 10, 10, 1}, {1, 10, 20, 20, 1}}},
		{"a seek forward counts as read", []event{{1, 0, 10, 10, 1}, {1, 500, 510, 510, 1}}},
		{"a seek back moves nothing", []event{{1, 0, 10, 10, 1}, {1, 2, 8, 10, 1}}},
		{"a look at the end is no reader", []event{{1, 90, 100, 0, 0}, {2, 0, 10, 10, 2}}},
		{"another handle moves nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 50, 10, 1}, {2, 10, 50, 10, 1}}},
		{"a new handle goes on where the reader closed", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 10, 20, 20, 2}}},
		{"a new handle that reads again from the front takes over when it covers the mark",
			[]event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 0, 10, 10, 0}, {2, 10, 15, 15, 2}}},
		{"a handle that starts behind the mark waits", []event{{1, 0, 10, 10, 1}, {1, 0, 0, 10, 0}, {2, 11, 20, 10, 0}, {3, 9, 12, 12, 3}}},
		{"closing another handle changes nothing", []event{{1, 0, 10, 10, 1}, {2, 0, 0, 10, 1}, {1, 10, 12, 12, 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m mark
			for i, e := range c.events {
				if e.end == 0 {
					m.closed(e.handle)
				} else {
					m.sent(e.handle, e.off, e.end, e.end)
				}
				require.Equal(t, mark{bytes: e.mark, reader: e.reader}, m, "after event %d", i)
			}
		})
	}
}

// The rule as DESIGN.md says it, from the whole history at each step.
func TestMarkEqualsItsDefinition(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		type read struct {
			handle   uint64
			off, end int64
		}
		var m mark
		var markBytes int64
		var reader uint64
		var leaving bool
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			h := rapid.Uint64Range(1, 4).Draw(t, "handle")
			switch rapid.IntRange(0, 9).Draw(t, "closes") {
			case 0:
				m.closed(h)
				if reader == h {
					reader, leaving = 0, false
				}
				continue
			case 1:
				m.flushed(h)
				leaving = leaving || reader == h
				continue
			}
			r := read{h, rapid.Int64Range(0, 40).Draw(t, "off"), 0}
			r.end = r.off + rapid.Int64Range(1, 20).Draw(t, "bytes")
			before := markBytes
			covers := r.off <= markBytes && r.end > markBytes
			if (reader == 0 || leaving) && covers {
				reader = h
			}
			if reader == h {
				leaving = false
				markBytes = max(markBytes, r.end)
			}
			moved := m.sent(h, r.off, r.end, r.end)
			if moved != (markBytes > before) {
				t.Fatalf("moved is %v from %d to %d", moved, before, markBytes)
			}
			if m != (mark{markBytes, reader, leaving}) {
				t.Fatalf("mark is %+v, not %d read by %d", m, markBytes, reader)
			}
		}
	})
}

// The kernel says late that a handle is closed, so that the next reader's first
// reads may come before. A flush comes in time.
func TestMarkGoesOnWithTheNextReaderBeforeTheLastIsReleased(t *testing.T) {
	mountsNothing(t)
	var m mark
	m.sent(1, 0, 10, 10)
	m.flushed(1)
	require.False(t, m.sent(2, 50, 60, 60), "it does not cover the mark")
	require.True(t, m.sent(2, 10, 20, 20))
	m.closed(1)
	require.Equal(t, mark{bytes: 20, reader: 2}, m)

	m.flushed(2) // one of its descriptors: a child's copy
	require.True(t, m.sent(2, 20, 30, 30))
	require.False(t, m.sent(3, 30, 40, 40), "2 has read on, so it is still the reader")
	require.Equal(t, mark{bytes: 30, reader: 2}, m)
}

// One reader at a time that goes on where the last one ended, whatever others
// do: then the mark is what the readers were sent.
func TestMarkIsNeverMovedByOnlookers(t *testing.T) {
	mountsNothing(t)
	rapid.Check(t, func(t *rapid.T) {
		var m mark
		var at int64
		reader := uint64(1)
		m.sent(reader, 0, 1, 1)
		at = 1
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			if rapid.Bool().Draw(t, "onlooker") {
				off := rapid.Int64Range(0, 100).Draw(t, "off")
				end := off + rapid.Int64Range(1, 100).Draw(t, "n")
				m.sent(100+rapid.Uint64Range(0, 3).Draw(t, "who"), off, end, end)
			} else {
				n := rapid.Int64Range(1, 10).Draw(t, "n")
				m.sent(reader, at, at+n, at+n)
				at += n
			}
			if m.bytes != at {
				t.Fatalf("mark is %d, the reader was sent %d", m.bytes, at)
			}
		}
	})
}

// What threads, AIO and io_uring do: the read at the mark is answered last.
func TestReadsThatAreUnderWayAtOnceCountWhicheverIsAnsweredFirst(t *testing.T) {
	mountsNothing(t)
	var m mark
	var f flight
	f.begin()
	require.False(t, m.sent(1, 90, 100, f.ended(100)), "a look at the end, which was over before")
	f.begin() // of [0, 10)
	f.begin() // of [20, 30)
	f.begin() // of [30, 40), which fails
	f.begin() // of [10, 20)
	require.False(t, m.sent(1, 20, 30, f.ended(30)))
	f.ended(0)
	require.False(t, m.sent(1, 10, 20, f.ended(20)))
	require.True(t, m.sent(1, 0, 10, f.ended(10)))
	require.Equal(t, mark{bytes: 30, reader: 1}, m)
	f.begin()
	require.True(t, m.sent(1, 30, 40, f.ended(40)))
	require.Equal(t, mark{bytes: 40, reader: 1}, m)
}
