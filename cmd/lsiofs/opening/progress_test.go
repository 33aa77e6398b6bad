package opening

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// pass shows an index pass over ten shards of 1 MiB, one a second.
func pass(show func(catalog.Progress)) {
	for i := range 11 {
		show(catalog.Progress{Shards: i, ShardsTotal: 12, Reused: 2, Bytes: int64(i) << 20, BytesTotal: 10 << 20,
			Records: uint64(i) * 1000, Elapsed: time.Duration(i) * time.Second})
	}
	show(catalog.Progress{Shards: 12, ShardsTotal: 12, Reused: 2, Bytes: 10 << 20, BytesTotal: 10 << 20, Records: 12000, Elapsed: 10 * time.Second, Done: true})
}

func TestProgressWithoutTerminalPrintsOccasionalLines(t *testing.T) {
	var out, err bytes.Buffer
	pass(NewPass(terminal.New(&out, &err)).Show)
	require.Empty(t, out.String())
	goldentest.Equal(t, "progress-lines.txt", err.String())
}

func TestProgressAsJSON(t *testing.T) {
	var out, err bytes.Buffer
	u := terminal.New(&out, &err)
	u.JSON = true
	pass(NewPass(u).Show)
	require.Empty(t, out.String())
	goldentest.Equal(t, "progress.jsonl", err.String())
}

func TestProgressOnTerminalIsTemporaryBar(t *testing.T) {
	var out, err bytes.Buffer
	u := terminal.New(&out, &err)
	u.Terminal = true
	v := NewPass(u)
	pass(v.Show)
	v.Clear()
	text := err.String()
	require.Contains(t, text, "indexing 0/12 shards")
	require.Contains(t, text, "\r", "it is redrawn in place")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\r")
	require.Equal(t, "indexed 10 shards in 10s (2 reused): 12,000 records", lines[len(lines)-1])
}

func TestNoProgressIsPrintedIfNothingWasIndexed(t *testing.T) {
	var out, err bytes.Buffer
	NewPass(terminal.New(&out, &err)).Show(catalog.Progress{Shards: 12, ShardsTotal: 12, Reused: 12, Elapsed: time.Second, Done: true})
	require.Empty(t, err.String())
}

func TestTimeLeftIsUnknownAtFirst(t *testing.T) {
	require.Equal(t, "listing the dataset", LineOf(catalog.Progress{}).String())
	require.Equal(t, "0 of 3 shards, 0 B of 1.0 KiB (0 %), 0 records, 0 B/s, ? left",
		LineOf(catalog.Progress{ShardsTotal: 3, BytesTotal: 1024}).String())
}
