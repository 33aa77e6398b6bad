package fs

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
)

func TestLookedUpNamesDoNotAccumulate(t *testing.T) {
	m := mount(t, 1)
	m.tree.lookups.mu.Lock()
	m.tree.lookups.kept = 100
	m.tree.lookups.mu.Unlock()
	root := m.tree.root
	open := m.open(m.path("epoch-3/worker-0-of-1.rec"), unix.O_RDONLY)
	before := m.must(call{Op: "fstat", FD: open}).Ino
	for n := range 3000 {
		m.must(call{Op: "stat", Path: m.path(fmt.Sprintf("epoch-%d", n+10))})
	}
	epochs := func() int {
		n := 0
		for name := range root.Children() {
			if strings.HasPrefix(name, prefixEpoch) {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return epochs() <= 200 }, callTimeout, hiddenFor/100)
	want := m.expect(checkpoint.Position{Epoch: 3}, 0, 1)[0]
	require.Equal(t, string(want[:50]), string(m.must(call{Op: "pread", FD: open, N: 50}).Data), "what is open stays")
	require.Equal(t, string(want), m.read(m.path("epoch-3/worker-0-of-1.rec")), "and is found again")
	require.Equal(t, before, m.must(call{Op: "stat", Path: m.path("epoch-3/worker-0-of-1.rec")}).Ino)
	require.Equal(t, syscall.Errno(0), m.do(call{Op: "close", FD: open}).Errno)
}

func TestLookupsDropOldestFirst(t *testing.T) {
	dropped := make(chan string, 100)
	l := newLookups(8, func(n lookedUp) { dropped <- n.name })
	for i := range 9 {
		l.add(nil, fmt.Sprint(i))
	}
	for i := range 3 { // one too many, and a quarter of those kept
		require.Equal(t, fmt.Sprint(i), <-dropped)
	}
	l.close()
	l.add(nil, "after the end")
	require.Empty(t, dropped)
}
