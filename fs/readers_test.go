package fs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadersAreOpenHandlesAndRepeatedlyOpenedWorkers(t *testing.T) {
	var s handles
	open := func(worker uint64, began int64) *streamHandle {
		h := &streamHandle{node: &streamNode{name: fileName{worker: worker}}}
		h.began.Store(began)
		s.add(h)
		return h
	}
	count := func(now int64, recent, active int) {
		t.Helper()
		r, a := s.readers(now)
		require.Equal(t, recent, r, "recent")
		require.Equal(t, active, a, "active")
	}
	open(7, 0) // has not read
	count(100*second, 0, 0)
	first := open(0, 100*second)
	open(0, 100*second)
	count(100*second, 2, 2)
	count(150*second, 2, 0)
	first.pending.Store(1)
	count(300*second, 1, 1) // it waits
	for k := range int64(5) {
		s.remove(open(1, (301+k)*second)) // one epoch after another
	}
	count(305*second, 2, 2)
	count(366*second, 1, 1)
	require.Empty(t, s.read.last, "what is older than a minute is forgotten")
}
