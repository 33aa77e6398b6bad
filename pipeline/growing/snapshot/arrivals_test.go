package snapshot

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// Programs write files in various ways. In none of them is a file a shard before it is complete:
// epochs are started continuously, and any file in them is complete.
func TestFilesStillBeingCopiedAreInNoEpoch(t *testing.T) {
	for _, way := range []string{"inotify", "poll"} {
		t.Run(way, func(t *testing.T) {
			p := newPlace(t)
			n := open(t, p, func(c *Config) { c.NoHints = way == "poll" })
			p.put(t, 5, "first.txt")
			n.eventually("first.txt")
			from := t.TempDir()
			const size = 40_000
			for _, dir := range []string{"tar", "cp", "mv"} {
				require.NoError(t, os.MkdirAll(filepath.Join(from, dir), 0o755))
				for i := range 5 {
					path := fmt.Sprintf("%s/%d.txt", dir, i)
					require.NoError(t, os.WriteFile(filepath.Join(from, path), lines(path, size), 0o644))
					old := time.Now().Add(-48 * time.Hour)
					require.NoError(t, os.Chtimes(filepath.Join(from, path), old, old))
				}
			}
			writers := []func() error{
				func() error {
					return exec.Command("sh", "-c", "tar -C '"+from+"' -c tar | tar -C '"+p.data+"' -x").Run()
				},
				func() error { return exec.Command("cp", "-rp", filepath.Join(from, "cp"), p.data).Run() },
				func() error { return exec.Command("mv", filepath.Join(from, "mv"), p.data).Run() },
				func() error { return writeSlowly(n, filepath.Join(p.data, "slow.txt"), size) },
			}
			ended := make(chan error, len(writers))
			for _, w := range writers {
				go func() { ended <- w() }()
			}
			latest := uint64(0)
			whole := func() (paths []string) {
				c, _, err := n.Catalog(t.Context(), latest, true)
				require.NoError(t, err)
				latest++
				for i := range c.Shards() {
					s := c.Shard(i)
					if s.Object.Path != "first.txt" {
						require.EqualValues(t, size, s.Records, s.Object.Path)
					}
					paths = append(paths, s.Object.Path)
				}
				require.NoError(t, c.Close())
				return paths
			}
			for range writers {
				for waiting := true; waiting; {
					select {
					case err := <-ended:
						require.NoError(t, err)
						waiting = false
					default:
						whole()
					}
				}
			}
			want := append(numbered("tar/#.txt", 0, 5), numbered("cp/#.txt", 0, 5)...)
			want = append(append(want, numbered("mv/#.txt", 0, 5)...), "slow.txt", "first.txt")
			slices.Sort(want)
			require.Eventually(t, func() bool { return slices.Equal(want, whole()) }, patience, 10*time.Millisecond)
		})
	}
}

// writeSlowly writes in pieces that end with a line, and writes the next one only when the watcher
// has seen the file unchanged for some looks.
func writeSlowly(n *node, path string, records int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	text := string(lines("slow.txt", records))
	for range 4 {
		cut := strings.LastIndexByte(text[:len(text)/2], '\n') + 1
		if _, err := f.WriteString(text[:cut]); err != nil {
			return err
		}
		text = text[cut:]
		for deadline := time.Now().Add(1500 * time.Millisecond); time.Now().Before(deadline); {
			_ = n.watcher.Scan(n.t.Context())
		}
	}
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// Random arrivals, deletions, changes and restarts, under several windows: each epoch is what a
// model predicts, and stays so for as long as its shards exist.
func TestEpochIsUnaffectedByLaterArrivals(t *testing.T) {
	r := rand.New(rand.NewPCG(serve.Seed(t), 0))
	p := newPlace(t)
	windows := []string{"all", "4shards", "50records", "120records", "1units"}
	there, epochs := map[string]int{}, []run.Epoch(nil)
	texts := map[uint64][]string{}
	n := open(t, p)
	for range 25 {
		for range r.IntN(4) {
			path := fmt.Sprintf("%c/%d.txt", 'a'+rune(r.IntN(3)), r.IntN(30))
			switch {
			case r.IntN(4) > 0:
				there[path] = 1 + r.IntN(40)
				p.put(t, there[path], path)
			case there[path] > 0:
				delete(there, path)
				require.NoError(t, os.Remove(filepath.Join(p.data, path)))
			}
		}
		asked := windows[r.IntN(len(windows))]
		if r.IntN(3) == 0 {
			n.close()
			n = open(t, p, window(t, asked))
		}
		if len(there) == 0 {
			continue
		}
		var model []catalog.LiveShard
		require.Eventually(t, func() bool {
			model = n.live.Shards()
			has := map[string]int{}
			for _, s := range model {
				has[s.Path] = int(s.Records)
			}
			return fmt.Sprint(has) == fmt.Sprint(there)
		}, patience, 10*time.Millisecond)
		growing.Newest(model, growing.ByName)
		var want []string
		for _, s := range n.config.Window.Choose(model, time.Now()) {
			want = append(want, s.Path)
		}
		slices.Sort(want)
		e, paths := n.taken(uint64(len(epochs)))
		require.Equal(t, want, paths)
		texts[e.Epoch] = paths
		epochs = append(epochs, e)
		k := r.IntN(len(epochs))
		if c, again, err := n.Catalog(t.Context(), uint64(k), true); err == nil {
			require.Equal(t, epochs[k], again)
			require.Equal(t, epochs[k].Snapshot, c.Fingerprint())
			require.Equal(t, texts[uint64(k)], pathsOf(c))
			require.NoError(t, c.Close())
		} else {
			require.Equal(t, epochs[k], again, "its shards have gone or changed: %v", err)
		}
	}
}

// A thousand files per second arrive, and all are indexed, none twice. How soon is measured by the
// benchmark.
func TestThousandsOfFilesArrive(t *testing.T) {
	p := newPlace(t)
	n := open(t, p)
	const files = 3000
	for i := range files {
		p.put(t, 2, fmt.Sprintf("%d/%d.txt", i%7, i))
	}
	require.Eventually(t, func() bool { return len(n.live.Shards()) == files }, patience, 10*time.Millisecond)
	e, _ := n.taken(0)
	require.EqualValues(t, files, e.Shards)
	require.EqualValues(t, 2*files, e.Records)
	require.Zero(t, n.Status().Indexing)
	require.Zero(t, n.Status().Settling)
}
