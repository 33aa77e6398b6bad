package taking

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two nodes of one run that have other windows read the same epochs, and say so: once, though
// they take turns.
func TestNodesWithOtherWindowsAreWarned(t *testing.T) {
	p := newPlace(t)
	p.put(t, 1, "a.txt", "b.txt", "c.txt")
	other := p
	other.index = t.TempDir()
	var said [2]bytes.Buffer
	logged := func(i int) func(*Config) {
		return func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(&said[i], &slog.HandlerOptions{Level: slog.LevelWarn}))
		}
	}
	nodes := []*node{open(t, p, window(t, "2shards"), logged(0)), open(t, other, window(t, "3shards"), logged(1))}
	for _, n := range nodes {
		n.eventually("a.txt", "b.txt", "c.txt")
	}
	for epoch := range uint64(6) {
		for i := range nodes {
			n := nodes[(int(epoch)+i)%2]
			_, paths := n.taken(epoch)
			require.Len(t, paths, 2+int(epoch%2), "who takes it decides")
		}
	}
	for _, n := range nodes {
		n.close()
	}
	for i, words := range [][]string{{"its_window=3shards", "window_here=2shards"}, {"its_window=2shards", "window_here=3shards"}} {
		text := said[i].String()
		require.Equal(t, 1, strings.Count(text, "--window"), text[:min(len(text), 2000)])
		for _, word := range words {
			require.Contains(t, text, word)
		}
	}
}
