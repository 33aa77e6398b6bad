package catalog

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A shard that is gone for more than an hour can't be sealed any more in the process that has
// indexed it, although a kept snapshot has it, and its link can be read (--hold).
func TestAShardOfAKeptSnapshotIsSealedAfterItWasGoneForAnHour(t *testing.T) {
	base := newWorld(t)
	base.write("a.jsonl", []byte("{}\n"))
	base.write("b.jsonl", []byte("{}\n"))
	base.write("c.jsonl", []byte("{}\n"))
	w := newStockWorld(base)
	s := w.mustOpenStock()
	w.look(s)
	text, err := s.Text(s.Shards())
	require.NoError(t, err)
	w.remove("a.jsonl")
	w.look(s)
	c, err := s.Seal(context.Background(), text)
	require.NoError(t, err, "just after")
	require.NoError(t, c.Close())
	w.advance(2 * time.Hour)
	w.remove("b.jsonl")
	w.look(s)
	c, err = s.Seal(context.Background(), text)
	require.NoError(t, err, "two hours after")
	require.NoError(t, c.Close())
}
