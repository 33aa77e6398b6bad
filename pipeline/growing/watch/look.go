package watch

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// seen is the result of a look at a path.
type seen struct {
	identity.Attributes
	traits filesystem.Traits
}

func (l *Watcher) full(path string) string { return filepath.Join(l.config.Root, path) }

// stat looks at a path. If follow is false, a symbolic link itself is described, even one to a
// directory. On network file systems the server is asked, not a cache.
func (l *Watcher) stat(path string, follow bool) (seen, error) {
	full := l.full(path)
	flags := unix.AT_STATX_SYNC_AS_STAT
	if !follow {
		flags |= unix.AT_SYMLINK_NOFOLLOW
	}
	a, err := statx(full, flags)
	if err != nil {
		return seen{}, err
	}
	s := seen{a, l.systems.Traits(unix.AT_FDCWD, full, a.Device)}
	if s.traits.Remote {
		s.Attributes, err = statx(full, flags|unix.AT_STATX_FORCE_SYNC)
	}
	return s, err
}

func statx(path string, flags int) (identity.Attributes, error) {
	var st unix.Statx_t
	for {
		switch err := unix.Statx(unix.AT_FDCWD, path, flags, identity.StatxMask, &st); err {
		case nil:
			return identity.FromStatx(&st), nil
		case unix.EINTR:
		case unix.ENOSYS, unix.EPERM: // a sandbox without statx
			return statPlain(path, flags)
		default:
			return identity.Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

func statPlain(path string, flags int) (identity.Attributes, error) {
	var st unix.Stat_t
	for {
		switch err := unix.Fstatat(unix.AT_FDCWD, path, &st, flags&unix.AT_SYMLINK_NOFOLLOW); err {
		case nil:
			return identity.FromStat(&st), nil
		case unix.EINTR:
		default:
			return identity.Attributes{}, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}

func (s *seen) isDirectory() bool { return s.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s *seen) isLink() bool      { return s.Mode&unix.S_IFMT == unix.S_IFLNK }

func (s *seen) object(path string) storage.Object {
	return storage.Object{Path: path, SizeBytes: s.SizeBytes, Version: s.Version(s.traits)}
}

func lookOf(o storage.Object) discover.Look {
	return discover.Look{SizeBytes: o.SizeBytes, ModTimeNanos: o.Version.ModTimeNanos, Inode: o.Version.Inode}
}

// wants reports whether a file may be a shard, judging by its name.
func (l *Watcher) wants(name, path string) bool {
	return discover.Finished(name) && l.config.Match(path, false)
}

// quiet returns how long a file must stay unchanged if there are no leases.
func (l *Watcher) quiet(t filesystem.Traits) time.Duration {
	switch {
	case l.config.Settle > 0:
		return l.config.Settle
	case t.Remote:
		return discover.NetworkSettle
	}
	return discover.DefaultSettle
}

// gone reports whether err means that nothing exists under the path.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) }
