package looking

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A root that is removed and made anew, or that another directory takes the place of, is looked at
// again at the next poll, although somebody has the old one open.
func TestARootThatIsReplacedIsLookedAtAgain(t *testing.T) {
	ways(t, func(t *testing.T, change func(*Config), wait time.Duration) {
		for name, replace := range map[string]func(s *still){
			"removed":    func(s *still) { require.NoError(t, os.RemoveAll(s.root)) },
			"moved away": func(s *still) { require.NoError(t, os.Rename(s.root, s.root+"-away")) },
		} {
			t.Run(name, func(t *testing.T) {
				s := newStill(t, t.TempDir(), change)
				held, err := os.Open(s.root)
				require.NoError(t, err)
				defer held.Close()
				s.write("a.tar", "a")
				s.write("x/b.tar", "b")
				s.after(wait)
				require.Len(t, s.after(wait), 2)
				require.Zero(t, s.Status().Replaced)

				replace(s)
				s.now = s.now.Add(DefaultPoll)
				require.ErrorContains(t, s.step(t.Context(), s.now, false), s.root)
				require.Error(t, s.Status().Err, "it is gone")
				s.write("c.tar", "c")
				s.write("x/d.tar", "d")
				s.after(DefaultPoll)
				require.Equal(t, []string{"c.tar", "x/d.tar"}, s.after(DefaultPoll))
				require.NoError(t, s.Status().Err)
				require.NotZero(t, s.Status().Replaced)
				s.write("e.tar", "e")
				s.after(wait)
				require.Equal(t, []string{"c.tar", "e.tar", "x/d.tar"}, s.after(wait), "what comes later is reported again")
			})
		}
	})
}

// What is behind a link to a directory is there, whatever happens to the link or behind it; a link that
// leads back is not followed.
func TestLinksToDirectoriesAreLookedAt(t *testing.T) {
	ways(t, func(t *testing.T, change func(*Config), wait time.Duration) {
		disk := t.TempDir()
		write(t, disk, "1/a.tar", "a")
		write(t, disk, "1/deep/b.tar", "b")
		write(t, disk, "2/c.tar", "c")
		root, said := filepath.Join(t.TempDir(), "root"), bytes.Buffer{}
		write(t, root, "../beside/f.tar", "f")
		write(t, root, "x/d.tar", "d")
		s := newStill(t, root, change, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
		require.NoError(t, os.Symlink(disk+"/1", s.at("one")))
		require.NoError(t, os.Symlink("..", s.at("x/back")))
		require.NoError(t, os.Symlink(disk+"/none", s.at("none")))
		s.after(wait)
		require.Equal(t, []string{"one/a.tar", "one/deep/b.tar", "x/d.tar"}, s.after(wait))

		require.NoError(t, os.Symlink("..", s.at("above")))
		s.after(DefaultPoll)
		require.Equal(t, []string{"above/beside/f.tar", "one/a.tar", "one/deep/b.tar", "x/d.tar"}, s.after(DefaultPoll))
		for _, back := range []string{"x/back", "above/root"} {
			require.Equal(t, 1, strings.Count(said.String(), "leads back to a directory above it, and is left out\" path="+s.at(back)), back)
		}
		require.NoError(t, os.Remove(s.at("above")))
		s.after(DefaultPoll)

		write(t, disk, "1/deep/new.tar", "new")
		s.after(DefaultPoll)
		require.Equal(t, []string{"one/a.tar", "one/deep/b.tar", "one/deep/new.tar", "x/d.tar"}, s.after(DefaultPoll))

		require.NoError(t, os.Remove(s.at("one")))
		require.NoError(t, os.Symlink(disk+"/2", s.at("one")))
		s.after(wait)
		require.Equal(t, []string{"one/c.tar", "x/d.tar"}, s.after(wait))
		require.NoError(t, os.Rename(disk+"/2", disk+"/away"))
		write(t, disk, "2/e.tar", "e")
		s.after(DefaultPoll)
		require.Equal(t, []string{"one/e.tar", "x/d.tar"}, s.after(DefaultPoll))
	})
}
