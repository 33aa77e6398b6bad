package hunt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// site is a file that is changed.
type site struct {
	shard int
	path  string // where it can be written to
	a, b  []byte // its content, and that of the later version
	other string // a file of the next shard
	sound string // a file that is never changed
	r     *rand.Rand
}

// change is a way to change a file of a dataset.
type change struct {
	name string
	do   func(s *site) error
	// prepare is called before the mount.
	prepare func(s *site) error
	// two means that the next shard is changed, too.
	two bool
	// passes means that the same file is back in the end, unchanged.
	passes bool
	// not lists the sources where it can't be done, or can't be noticed.
	not []string
	// inode means that only the inode number shows it: it can't be noticed on a FUSE that works
	// with paths.
	inode bool
}

// changes lists all changes.
var changes = []change{
	{name: "one large write", do: overwrite},
	{name: "small writes", do: overwriteInPieces},
	{name: "stores through a mapping", do: store, not: []string{tmpfs.name}},
	{name: "cut", do: func(s *site) error { return os.Truncate(s.path, s.r.Int64N(int64(len(s.a)))) }},
	{name: "cut and extended", do: cutAndExtend},
	{name: "cut and written anew", do: func(s *site) error { return os.WriteFile(s.path, s.b, 0o644) }},
	{name: "grown", do: grow},
	{name: "another file of the same size and time", do: replace, inode: true},
	{name: "removed", do: func(s *site) error { return os.Remove(s.path) }},
	{name: "made a directory", do: func(s *site) error { return errors.Join(os.Remove(s.path), os.Mkdir(s.path, 0o755)) }},
	{name: "made a pipe", do: func(s *site) error { return errors.Join(os.Remove(s.path), unix.Mkfifo(s.path, 0o644)) }},
	{name: "made a link to another shard", do: func(s *site) error { return errors.Join(os.Remove(s.path), os.Symlink(s.sound, s.path)) }},
	{name: "made empty", do: func(s *site) error { return os.Truncate(s.path, 0) }},
	{name: "written with the same content", do: func(s *site) error { return os.WriteFile(s.path, s.a, 0o644) }},
	{name: "touched", do: func(s *site) error { return os.Chtimes(s.path, time.Time{}, time.Now()) }},
	{name: "a hole", do: allocate(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)},
	{name: "zeros", do: allocate(unix.FALLOC_FL_ZERO_RANGE), not: []string{tmpfs.name}},
	{name: "collapsed", do: allocate(unix.FALLOC_FL_COLLAPSE_RANGE), not: []string{tmpfs.name, overlay.name}},
	{name: "exchanged with another shard", do: exchange, two: true},
	{name: "another file behind a link", do: relink, prepare: makeLink},
	{name: "away and back", do: awayAndBack, passes: true, not: []string{overlay.name}},
}

// applies reports whether a change can be made and noticed on a source.
func (c change) applies(s source) bool {
	return !slices.Contains(c.not, s.name) && !(c.inode && s.options != nil)
}

// writing opens an existing file, calls f, and closes it.
func writing(path string, f func(*os.File) error) error {
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f(w), w.Close())
}

func overwrite(s *site) error {
	return writing(s.path, func(w *os.File) error {
		_, err := w.WriteAt(s.b, 0)
		return err
	})
}

func overwriteInPieces(s *site) error {
	return writing(s.path, func(w *os.File) error {
		n := 1 + s.r.IntN(20_000)
		for at := 0; at < len(s.b); at += n {
			if _, err := w.WriteAt(s.b[at:min(at+n, len(s.b))], int64(at)); err != nil {
				return err
			}
			if s.r.IntN(8) == 0 {
				time.Sleep(time.Duration(s.r.IntN(3)) * time.Millisecond)
			}
		}
		return nil
	})
}

// store writes through a new mapping, so that its first store is noticed.
func store(s *site) error {
	return writing(s.path, func(w *os.File) error {
		n := min(len(s.a), len(s.b))
		m, err := unix.Mmap(int(w.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		if s.r.IntN(2) == 0 {
			copy(m, s.b)
		} else { // backwards, piece by piece
			for at := n; at > 0; at -= 10_000 {
				copy(m[max(0, at-10_000):at], s.b[max(0, at-10_000):at])
			}
		}
		return unix.Munmap(m)
	})
}

func cutAndExtend(s *site) error {
	return errors.Join(os.Truncate(s.path, s.r.Int64N(int64(len(s.a)))), os.Truncate(s.path, int64(len(s.a))))
}

func grow(s *site) error {
	w, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = w.Write(s.b[:1+s.r.IntN(len(s.b))])
	return errors.Join(err, w.Close())
}

// fresh writes a file of version B next to the site, hidden from listings.
func (s *site) fresh() (path string, err error) {
	path = filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.path)+".new")
	return path, os.WriteFile(path, s.b, 0o644)
}

// replace changes nothing but the inode number and its change time.
func replace(s *site) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	path, err := s.fresh()
	return errors.Join(err, os.Truncate(path, info.Size()), os.Chtimes(path, info.ModTime(), info.ModTime()), os.Rename(path, s.path))
}

func allocate(mode uint32) func(s *site) error {
	return func(s *site) error {
		const block = 4096
		return writing(s.path, func(w *os.File) error {
			blocks := (int64(len(s.a)) - 1) / block // except for the last, which must stay
			if blocks == 0 {
				return os.Truncate(s.path, 1)
			}
			from := s.r.Int64N(blocks)
			return unix.Fallocate(int(w.Fd()), mode, from*block, (1+s.r.Int64N(blocks-from))*block)
		})
	}
}

func exchange(s *site) error {
	return unix.Renameat2(unix.AT_FDCWD, s.path, unix.AT_FDCWD, s.other, unix.RENAME_EXCHANGE)
}

// hidden returns the path of a link's target.
func (s *site) hidden() string {
	return filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.path)+".behind")
}

func makeLink(s *site) error {
	return errors.Join(os.Rename(s.path, s.hidden()), os.Symlink(filepath.Base(s.hidden()), s.path))
}

func relink(s *site) error {
	path, err := s.fresh()
	link := path + ".link"
	return errors.Join(err, os.Symlink(filepath.Base(path), link), os.Rename(link, s.path))
}

func awayAndBack(s *site) error {
	away := s.hidden()
	if err := os.Rename(s.path, away); err != nil {
		return err
	}
	time.Sleep(time.Duration(s.r.IntN(40)) * time.Millisecond)
	return os.Rename(away, s.path)
}

// site returns the file of a shard that is changed: its only one, or one of a folder.
func (d *dataset) site(shard int, dir string, r *rand.Rand) *site {
	i := r.IntN(len(d.a[shard]))
	next := (shard + 1) % shards
	a := d.a[shard][i]
	return &site{
		shard: shard, path: filepath.Join(dir, a.path), a: a.bytes, b: d.b[shard][i].bytes,
		other: filepath.Join(dir, d.a[next][i].path), sound: filepath.Join(dir, d.a[targets][i].path), r: r,
	}
}

func (s *site) String() string { return fmt.Sprintf("shard %d (%s)", s.shard, filepath.Base(s.path)) }

func TestChangesAreMadeOnlyIfDetectable(t *testing.T) {
	for _, c := range changes {
		for _, s := range sources {
			switch {
			case c.inode:
				require.Equal(t, s.options == nil, c.applies(s), "%s on %s", c.name, s.name)
			case len(c.not) == 0:
				require.True(t, c.applies(s), "%s on %s", c.name, s.name)
			}
		}
	}
	for _, s := range []source{ext4, overlay} {
		require.True(t, slices.ContainsFunc(changes, func(c change) bool { return c.inode && c.applies(s) }), s.name)
	}
}
