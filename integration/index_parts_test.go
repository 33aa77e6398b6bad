package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// indexedPart is the output of `lsiofs index --part --json`.
type indexedPart struct {
	Part, Parts int
	Shards      int `json:"shards"`
	OfPart      int `json:"shards_of_part"`
	Reused      int `json:"shards_reused"`
	Known       int `json:"shards_indexed"`
	Left        int `json:"shards_left_to_other_parts"`
}

func indexPart(t *testing.T, d dataset, index, count int, more ...string) (p indexedPart) {
	t.Helper()
	args := append([]string{"index", d.dir, "--json", "--part", fmt.Sprintf("%d/%d", index, count)}, d.flags...)
	require.NoError(t, json.Unmarshal(toolOK(t, append(args, more...)...), &p))
	return p
}

// For each format, concurrent processes index the parts, and nothing is left for the process that
// joins them.
func TestIndexPartsOfManyProcessesFormIndex(t *testing.T) {
	serve.Tier(t, serve.CI)
	allFormats(t, func(t *testing.T, d dataset) {
		want := index(t, d, "--index-dir", t.TempDir())
		dir := t.TempDir()
		const count = 3
		var group sync.WaitGroup
		var outs [count][]byte
		var errs [count]error
		for i := range count {
			group.Go(func() {
				args := append([]string{"index", d.dir, "--json", "--index-dir", dir, "--part", fmt.Sprintf("%d/%d", i, count)}, d.flags...)
				outs[i], errs[i] = exec.Command(lsiofs, args...).Output()
			})
		}
		group.Wait()
		of := 0
		for i := range count {
			require.NoError(t, errs[i])
			var p indexedPart
			require.NoError(t, json.Unmarshal(outs[i], &p))
			require.Equal(t, []int{i, count, want.Shards}, []int{p.Part, p.Parts, p.Shards})
			of += p.OfPart
		}
		require.Equal(t, want.Shards, of)
		got := index(t, d, "--index-dir", dir)
		require.Equal(t, want.Shards, got.Reused)
		got.Reused = want.Reused
		require.Equal(t, want, got)
	})
}

func TestKilledIndexPartsResume(t *testing.T) {
	d := plain(t, "jsonl", 60)
	want := newReference(t, d).fingerprint()
	dir := t.TempDir()
	const count = 4
	r := rand.New(rand.NewPCG(serve.Seed(t), 0))
	for range 40 {
		cmd := exec.Command(lsiofs, "index", d.dir, "--index-dir", dir, "--part", fmt.Sprintf("%d/%d", r.IntN(count), count))
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // any moment will do
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for i := range count {
		p := indexPart(t, d, i, count, "--index-dir", dir)
		require.Equal(t, 15, p.OfPart)
		if i == count-1 {
			require.Zero(t, p.Left)
		}
	}
	got := index(t, d, "--index-dir", dir)
	require.Equal(t, want, got.Fingerprint)
	require.Equal(t, 60, got.Reused)
	require.Len(t, indexFiles(t, dir), 2, "the index, and the text of its fingerprint")
}

func TestInvalidIndexPartsAreRefusedWithExplanation(t *testing.T) {
	d := plain(t, "jsonl", 2)
	for _, part := range []string{"2/2", "1", "-1/2", "a/b", "1/0", "1/2/3"} {
		r := tool(t, "index", d.dir, "--part", part)
		require.Equal(t, exitUsage, r.code, part)
		require.Contains(t, r.stderr, "is not a part: write i/n")
	}
	r := tool(t, "index", d.dir, "--part", "0/2", "--rebuild")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--part and --rebuild can't be combined")
}
