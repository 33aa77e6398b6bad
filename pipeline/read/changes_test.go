package read

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestChangedShardIsReportedOnce(t *testing.T) {
	var c Changes
	require.Nil(t, c.Changed())
	c.Note(&storage.Error{Object: "good", Err: errors.New("input/output error")})
	require.Nil(t, c.Changed(), "it can't be read, and has not changed")
	changed := func(shard string, off int64) error {
		return fmt.Errorf("record 7: %w", &storage.Error{Object: shard, OffsetBytes: off, SizeBytes: 10, Err: fmt.Errorf("size is 5 bytes, was 7: %w", storage.ErrChanged)})
	}
	for off := range int64(5) {
		c.Note(changed("b", off))
		c.Note(changed("a", off))
	}
	got := c.Changed()
	require.Equal(t, 2, got.Count)
	require.Equal(t, "b", got.First[0].Shard)
	require.Equal(t, "size is 5 bytes, was 7", got.First[0].Reason)
	for n := range 2 * changesCounted {
		c.Note(changed(fmt.Sprint(n), 0))
	}
	require.Equal(t, changesCounted, c.Changed().Count)
	require.Len(t, c.Changed().First, changesKept)
}
