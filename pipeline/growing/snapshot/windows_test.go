package snapshot

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/growing"
)

// Two nodes of one run with different windows read the same epochs, and log that: once, even if
// they take turns.
func TestWarnsAboutNodesWithDifferentWindows(t *testing.T) {
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
		require.Equal(t, 1, strings.Count(text, "another --window"), text[:min(len(text), 2000)])
		for _, word := range words {
			require.Contains(t, text, word)
		}
	}
}

// If times decide, a shard whose time is in the future is named in the status and, once, in the
// log.
func TestFutureShardIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		warned bool
	}{
		"a window of time":   {window(t, "1h"), true},
		"the newest by time": {func(c *Config) { c.Newest = growing.ByTime }, true},
		"the newest by name": {window(t, "2shards"), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.put(t, 1, "a.txt", "b.txt")
			ahead := time.Now().Add(5 * time.Hour)
			require.NoError(t, os.Chtimes(filepath.Join(p.data, "b.txt"), ahead, ahead))
			var said bytes.Buffer
			n := open(t, p, c.change, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
			n.eventually("a.txt", "b.txt")
			_, paths := n.taken(0)
			require.Equal(t, []string{"a.txt", "b.txt"}, paths)
			for range 2 {
				require.Equal(t, c.warned, strings.Contains(n.Status().Warning, "b.txt has the time "+ahead.UTC().Format(time.RFC3339)+", which is in the future"), n.Status().Warning)
			}
			n.close()
			require.Equal(t, c.warned, strings.Count(said.String(), "in the future: set the clocks") == 1)
		})
	}
}
