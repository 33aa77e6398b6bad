package watch

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// A root that is removed and recreated, or replaced by another directory, is looked at again at the
// next poll, even if a process has the old one open.
func TestReplacedRootIsCheckedAgain(t *testing.T) {
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
				if name == "removed" {
					return
				}
				require.NoError(t, os.Rename(s.root, s.root+"-other"))
				require.NoError(t, os.Rename(s.root+"-away", s.root))
				s.after(DefaultPoll)
				require.Equal(t, []string{"a.tar", "x/b.tar"}, s.after(DefaultPoll))
				require.Zero(t, s.Status().Replaced, "it is the first one again")
			})
		}
	})
}

// Files reached through a link to a directory are seen, whatever happens to the link or its target;
// a link that leads back is not followed.
func TestLinksToDirectoriesAreWatched(t *testing.T) {
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
			require.Equal(t, 1, strings.Count(said.String(), "a symbolic link to a directory above it is left out\" path="+s.at(back)), back)
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

// Links that cross give directories an exploding number of paths. The ones left out are an error of
// a directory, and the rest is looked at.
func TestLinksThatCrossAreAnError(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	const n = 12
	for i := range n {
		dir := fmt.Sprintf("%02d", i)
		write(t, root, dir+"/a.tar", "x")
		for k := range n {
			require.NoError(t, os.Symlink(fmt.Sprintf("../%02d", k), filepath.Join(root, dir, fmt.Sprintf("to-%02d", k))))
		}
	}
	_, err := Open(t.Context(), Config{Root: root, Match: func(string, bool) bool { return true }, StatStable: func(storage.Object) {}, Gone: func(string) {}, NoHints: true})
	require.ErrorIs(t, err, filesystem.ErrManyLinks)
}

// A link to nothing, or to a path that the environment forbids, is not left out silently, nor is
// anything that is neither file nor directory.
func TestDanglingAndForbiddenLinksAreReported(t *testing.T) {
	ways(t, func(t *testing.T, change func(*Config), wait time.Duration) {
		root, kubelet := filepath.Join(t.TempDir(), "root"), t.TempDir()
		write(t, kubelet, "pods/secret.tar", "secret")
		write(t, root, "x/d.tar", "d")
		t.Setenv(filesystem.NeverVariable, kubelet)
		left := map[string]string{}
		s := newStill(t, root, change, func(c *Config) {
			c.LeftOut = func(path, reason string) { left[path] = reason }
			c.Match = func(path string, isDir bool) bool {
				return isDir && !strings.HasPrefix(path, "other") || strings.HasSuffix(path, ".tar")
			}
		})
		for name, to := range map[string]string{"disk": "nothing", "e.tar": "nowhere", "other": "nothing"} {
			require.NoError(t, os.Symlink(to, s.at(name)))
		}
		require.NoError(t, unix.Mkfifo(s.at("pipe.tar"), 0o644))
		require.NoError(t, os.Symlink("/dev/zero", s.at("zero.tar")))
		s.after(DefaultPoll)
		require.Equal(t, []string{"x/d.tar"}, s.after(DefaultPoll))
		require.Equal(t, map[string]string{
			"disk": storage.OmittedDead, "e.tar": storage.OmittedDead, "pipe.tar": storage.OmittedKind, "zero.tar": storage.OmittedKind,
		}, left)
		write(t, root, "nothing/f.tar", "f")
		s.after(everythingEvery) // a change of the link's target is not reported
		require.Equal(t, []string{"disk/f.tar", "nothing/f.tar", "x/d.tar"}, s.after(DefaultPoll))
		require.Empty(t, left["disk"])

		require.NoError(t, os.Symlink(kubelet, s.at("in")))
		refused := func(link string) {
			t.Helper()
			for range 2 {
				s.now = s.now.Add(DefaultPoll)
				err := s.step(t.Context(), s.now, true)
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorContains(t, err, s.at(link)+": it leads to "+kubelet)
			}
			require.Equal(t, []string{"disk/f.tar", "nothing/f.tar", "x/d.tar"}, s.paths())
		}
		refused("in")
		require.NoError(t, os.Remove(s.at("in")))
		require.NoError(t, os.Symlink(kubelet+"/pods/secret.tar", s.at("g.tar")))
		refused("g.tar")
	})
}
