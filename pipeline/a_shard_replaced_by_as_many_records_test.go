package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// put writes a shard of 100 lines that all have as many bytes, whatever the word.
func put(t *testing.T, dir, word string, number int) {
	t.Helper()
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, "{\"word\": %q, \"line\": \"%03d\"}\n", word, i)
	}
	temporary := filepath.Join(dir, fmt.Sprintf("%d.tmp", number))
	require.NoError(t, os.WriteFile(temporary, []byte(b.String()), 0o644))
	require.NoError(t, os.Rename(temporary, filepath.Join(dir, fmt.Sprintf("s.%d.jsonl", number))))
}

// linesOfEpoch gives all lines of an epoch.
func linesOfEpoch(t *testing.T, d *Dataset, epoch uint64) (string, error) {
	t.Helper()
	set, err := d.Set(t.Context(), epoch, nil, d.Spec().Deal)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for w := range d.Spec().Deal.Workers {
		h := set.Open(w, stream.Data)
		var r stream.Reply
		for from := int64(0); ; {
			if err := h.ReadAt(t.Context(), &r, from, 1<<16); err != nil {
				h.Close()
				return all.String(), err
			}
			n := r.Len()
			for _, b := range r.Slices {
				all.Write(b)
			}
			r.Release()
			if from += int64(n); n == 0 {
				break
			}
		}
		h.Close()
	}
	return all.String(), nil
}

// settle waits until the stock knows a file as it is now.
func settle(t *testing.T, d *Dataset, path string) {
	t.Helper()
	f := d.generations.snapshots.(*follower)
	require.Eventually(t, func() bool {
		o, err := f.mount.files.Stat(t.Context(), path)
		return err == nil && f.stock.Has(o)
	}, time.Minute, 20*time.Millisecond)
}

// The manual: a shard that changes is another shard in the next epoch.
func TestAReplacedShardIsReadInTheNextEpoch(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	put(t, dir, "old", 1)
	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	put(t, dir, "new", 1)
	settle(t, d, "s.1.jsonl")
	begin(t, d, 1)
	text, err := linesOfEpoch(t, d, 1)
	require.NoError(t, err)
	require.Equal(t, 100, strings.Count(text, "new"))
}

// Right bytes or an error: two nodes never read other bytes of one epoch.
func TestTwoNodesReadTheSameBytesOfAnEpoch(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	put(t, dir, "old", 1)
	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	before, err := linesOfEpoch(t, d, 0)
	require.NoError(t, err)
	run := d.Run()
	require.NoError(t, d.Close())
	put(t, dir, "new", 1)

	// As a resume does.
	s := growingSpec(t, dir, runDir)
	s.Grow.Of, s.Grow.Latest = run, false
	other, err := Open(t.Context(), s, Options{})
	if err != nil {
		require.NotErrorIs(t, err, growing.ErrNotYet)
		return // an error is right
	}
	defer func() { require.NoError(t, other.Close()) }()
	after, err := linesOfEpoch(t, other, 0)
	if err == nil {
		require.Equal(t, before, after, "bytes of epoch 0")
	}
}
