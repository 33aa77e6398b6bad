package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// killed sets the index directory to the state that a process leaves when it is killed now, perhaps
// while it writes to a journal.
func (w *liveWorld) killed(cut func(bytes int64) int64) {
	left := filepath.Join(w.tempDir(), "index")
	require.NoError(w.t, os.Mkdir(left, 0o700))
	for _, path := range w.indexFiles("*") {
		data, err := os.ReadFile(path)
		require.NoError(w.t, err)
		if filepath.Ext(path) == ".journal" {
			data = data[:int64(len(data))-cut(int64(len(data)))]
		}
		require.NoError(w.t, os.WriteFile(filepath.Join(left, filepath.Base(path)), data, 0o600))
	}
	w.index = left
}

// replace writes a file atomically, as a new file.
func (w *liveWorld) replace(path string, data []byte) {
	w.write(".tmp", data)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(filepath.Join(w.data, path)), 0o755))
	require.NoError(w.t, os.Rename(filepath.Join(w.data, ".tmp"), filepath.Join(w.data, path)))
}

// static returns the catalog of a directory with exactly these files.
func (w *liveWorld) static(files map[string][]byte, change ...func(*Config)) *Catalog {
	other := &world{t: w.t, cleanup: w.cleanup, data: w.tempDir(), engine: w.engine, index: filepath.Join(w.tempDir(), "index")}
	for path, data := range files {
		other.write(path, data)
	}
	return other.mustOpen(change...)
}

// Whatever is added, changed or removed, and however often the process ends or is killed: the
// shards are the same as in a mount of only the whole files, and so is the sealed index.
func TestLiveIndexEqualsMountOfSameFiles(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newLiveWorld(newWorldUntil(t, r.Cleanup))
		whole, broken := map[string][]byte{}, map[string]bool{}
		s, err := w.openLive()
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		reopen := func() {
			s, err = w.openLive()
			require.NoError(t, err)
		}
		path := func(r *rapid.T) string {
			return fmt.Sprintf("d%d/f%d.jsonl.gz", rapid.IntRange(0, 1).Draw(r, "directory"), rapid.IntRange(0, 5).Draw(r, "file"))
		}
		content := func(r *rapid.T) []byte {
			var members [][]byte
			for i := range rapid.IntRange(1, 3).Draw(r, "members") {
				members = append(members, linesOf(rapid.IntRange(1, 20).Draw(r, "records"), fmt.Sprint(i)))
			}
			return gz(members...)
		}
		var sealed []*Catalog
		defer func() {
			for _, c := range sealed {
				require.NoError(t, c.Close())
			}
		}()
		r.Repeat(map[string]func(*rapid.T){
			"come": func(r *rapid.T) {
				p, data := path(r), content(r)
				w.replace(p, data)
				whole[p] = data
				delete(broken, p)
			},
			"come in part": func(r *rapid.T) {
				p, data := path(r), content(r)
				w.replace(p, data[:rapid.IntRange(20, len(data)-1).Draw(r, "bytes")])
				delete(whole, p)
				broken[p] = true
			},
			"go": func(r *rapid.T) {
				p := path(r)
				if whole[p] == nil && !broken[p] {
					r.Skip("not there")
				}
				w.remove(p)
				delete(whole, p)
				delete(broken, p)
			},
			"end": func(r *rapid.T) { require.NoError(t, s.Close()); reopen() },
			"kill": func(r *rapid.T) {
				w.killed(func(n int64) int64 { return rapid.Int64Range(0, min(n, 300)).Draw(r, "cut") })
				require.NoError(t, s.Close())
				reopen()
			},
			"seal": func(r *rapid.T) {
				shards := s.Shards()
				if len(shards) == 0 {
					r.Skip("no shards")
				}
				some := map[string][]byte{}
				var chosen []LiveShard
				for _, x := range shards {
					if len(chosen) == 0 || rapid.Bool().Draw(r, "choose") {
						chosen = append(chosen, x)
						some[x.Path] = whole[x.Path]
					}
				}
				text, err := s.Text(chosen)
				require.NoError(t, err)
				c, err := s.Seal(context.Background(), text)
				require.NoError(t, err)
				sealed = append(sealed, c)
				requireSame(t, w.static(some), c)
			},
			"": func(r *rapid.T) {
				w.look(s)
				paths := pathsOf(s.Shards())
				want := []string{}
				for p := range whole {
					want = append(want, p)
				}
				slices.Sort(want)
				for p := range broken { // a file cut between two members is whole
					if slices.Contains(paths, p) {
						data, err := os.ReadFile(filepath.Join(w.data, p))
						require.NoError(t, err)
						whole[p] = data
						delete(broken, p)
						want = append(want, p)
						slices.Sort(want)
					}
				}
				require.Equal(t, want, append([]string{}, paths...))
				require.Len(t, s.Waiting(), len(broken))
			},
		})
	})
}
