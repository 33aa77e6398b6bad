package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// put writes a shard of 100 lines whose size does not depend on the word.
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

// linesOfEpoch returns all lines of an epoch.
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

// settle waits until the live index has indexed a file as it is now.
func settle(t *testing.T, d *Dataset, path string) {
	t.Helper()
	f := d.generations.snapshots.(*follower)
	require.Eventually(t, func() bool {
		o, err := f.mount.files.Stat(t.Context(), path)
		return err == nil && f.live.Has(o)
	}, time.Minute, 20*time.Millisecond)
}

// A shard that changes is another shard in the next epoch, even if its figures, and therefore the
// snapshot, are the same.
func TestReplacedShardIsReadInNextEpoch(t *testing.T) {
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
