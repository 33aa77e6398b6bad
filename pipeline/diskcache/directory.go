package diskcache

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring"
)

// directory is a cache's directory. Its methods may be called concurrently.
type directory struct {
	disk  disk
	path  string // absolute
	store int    // v1, open
	owner uint32 // the owner of everything in it that counts
	// punches means that the file system frees pages in the middle of files.
	punches bool
	// remote means that the file system is FUSE's or a network's.
	remote bool
}

var errTrust = errors.New("choose another directory with --cache-dir")

// openDirectory opens a cache's directory, and creates it if it does not exist. It refuses a
// directory that others can write to, or that belongs to another user.
func openDirectory(d disk, path string, log *slog.Logger) (*directory, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("cache directory %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(absolute), 0o755); err != nil {
		return nil, fmt.Errorf("cache directory: %w", err)
	}
	if err := d.mkdir(unix.AT_FDCWD, absolute); err != nil && err != unix.EEXIST {
		return nil, fmt.Errorf("cache directory: %w", &fs.PathError{Op: "mkdir", Path: absolute, Err: err})
	}
	c := &directory{disk: d, path: absolute, store: -1, owner: uint32(os.Geteuid())}
	if err := c.enter(); err != nil {
		return nil, fmt.Errorf("cache directory %s: %w", absolute, err)
	}
	if c.remote {
		log.Warn("the cache is on a network file system or on FUSE: it may cost more than it saves; choose a directory on a disk of this machine with --cache-dir", "dir", absolute)
	}
	if !c.punches {
		log.Warn("the file system of the cache can't free pages in the middle of files: what only passes through is not kept", "dir", absolute)
	}
	return c, nil
}

// lookAt opens a cache's directory to look at it: it writes nothing, and there may be no store yet
// (store is -1). Errors are those of openDirectory, and unix.ENOENT if it is no cache yet.
func lookAt(d disk, path string) (*directory, error) {
	c := &directory{disk: d, path: path, store: -1, owner: uint32(os.Geteuid())}
	root, err := c.openRoot()
	if err != nil {
		return nil, err
	}
	defer c.disk.close(root)
	if claimed, err := c.isClaimed(root); err != nil {
		return nil, err
	} else if !claimed {
		return nil, unix.ENOENT
	}
	if c.store, err = c.subdirectory(root, storeName, false); err != nil && err != unix.ENOENT {
		return nil, fmt.Errorf("%s: %w", storeName, err)
	}
	return c, nil
}

// openRoot opens the directory, and checks that it may be used.
func (c *directory) openRoot() (int, error) {
	root, err := c.disk.open(unix.AT_FDCWD, c.path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, fmt.Errorf("it is not a directory (links are not followed): %w", errTrust)
	} else if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	if err := c.trust(root); err != nil {
		c.disk.close(root)
		return -1, err
	}
	return root, nil
}

// enter checks that the directory is a cache's, and opens its store.
func (c *directory) enter() error {
	root, err := c.openRoot()
	if err != nil {
		return err
	}
	defer c.disk.close(root)
	// Processes that create it at the same time do so one after the other, except on file systems
	// without such locks.
	_ = c.disk.lock(root, unix.LOCK_EX)
	if err := c.claim(root); err != nil {
		return err
	}
	if c.store, err = c.subdirectory(root, storeName, true); err != nil {
		return fmt.Errorf("%s: %w", storeName, err)
	}
	c.remote = uring.TraitsOf(c.store).Remote
	c.punches, err = c.tryPunching()
	if err != nil {
		c.disk.close(c.store)
	}
	return err
}

// trust returns why a directory must not be used: it has to belong to this user, and be closed to
// all others.
func (c *directory) trust(fd int) error {
	st, err := c.disk.stat(fd)
	switch {
	case err != nil:
		return fmt.Errorf("stat: %w", err)
	case st.Uid != c.owner:
		return fmt.Errorf("it belongs to user %d, not to you (%d): %w", st.Uid, c.owner, errTrust)
	case st.Mode&0o077 != 0:
		return fmt.Errorf("others may use it (mode %04o): chmod 700, or %w", st.Mode&0o7777, errTrust)
	}
	return nil
}

// isClaimed reports whether a directory is a cache's: false if it has no tag, or an empty one. It is
// an error if it is another program's.
func (c *directory) isClaimed(root int) (bool, error) {
	tag, err := c.disk.open(root, tagName, unix.O_RDONLY|unix.O_NONBLOCK)
	if err == unix.ENOENT {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("%s: %w", tagName, err)
	}
	defer c.disk.close(tag)
	text := make([]byte, len(tagText))
	n, err := c.disk.read(tag, text, 0)
	if err != nil {
		return false, fmt.Errorf("%s: %w", tagName, err)
	}
	if !bytes.HasPrefix(text[:n], []byte(tagMine)) && n > 0 {
		return false, fmt.Errorf("it is another program's cache: %w", errTrust)
	}
	return n > 0, nil
}

// claim checks that a directory is a cache's. It makes an empty one a cache's.
func (c *directory) claim(root int) error {
	if claimed, err := c.isClaimed(root); err != nil || claimed {
		return err
	}
	err := c.disk.names(root, func(name string) error {
		if name == tagName {
			return nil // a process was killed before it could write the tag
		}
		return fmt.Errorf("it is not empty (it has %q), and not a cache of lsiofs: %w", name, errTrust)
	})
	if err != nil {
		return err
	}
	tag, err := c.disk.open(root, tagName, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return fmt.Errorf("%s: %w", tagName, err)
	}
	defer c.disk.close(tag)
	if err := c.disk.write(tag, []byte(tagText), 0); err != nil {
		return fmt.Errorf("%s: %w", tagName, err)
	}
	return nil
}

// subdirectory opens one of the cache's directories. With create, it creates it if it does not
// exist.
func (c *directory) subdirectory(in int, name string, create bool) (int, error) {
	fd, err := c.disk.open(in, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT && create {
		if err := c.disk.mkdir(in, name); err != nil && err != unix.EEXIST {
			return -1, err
		}
		fd, err = c.disk.open(in, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return -1, err
	}
	if err := c.trust(fd); err != nil {
		c.disk.close(fd)
		return -1, err
	}
	return fd, nil
}

// tryPunching finds out whether the file system frees pages. It fails if nothing can be written,
// because then a cache is useless.
func (c *directory) tryPunching() (bool, error) {
	name := fmt.Sprintf("try-%d", os.Getpid())
	fd, err := c.disk.open(c.store, name, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return false, fmt.Errorf("write to it: %w", err)
	}
	defer func() {
		c.disk.close(fd)
		_ = c.disk.unlink(c.store, name)
	}()
	if err := c.disk.write(fd, make([]byte, pageBytes), 0); err != nil {
		return true, nil // the disk is full, which may be temporary
	}
	return c.disk.punch(fd, 0, pageBytes) == nil, nil
}

func (c *directory) close() {
	if c.store >= 0 {
		c.disk.close(c.store)
	}
}

// space is the size of a file system and what is free for this user, in bytes.
type space struct{ total, free int64 }

func (c *directory) space() (space, error) {
	st, err := c.disk.statfs(c.store)
	if err != nil {
		return space{}, err
	}
	return space{int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize}, nil
}

// folders calls visit with each folder of the store, open. It skips those that are not the cache's.
func (c *directory) folders(visit func(name string, fd int) error) error {
	store, err := c.disk.open(c.store, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer c.disk.close(store)
	return c.disk.names(store, func(name string) error {
		if len(name) != 2 {
			return nil
		}
		fd, err := c.subdirectory(c.store, name, false)
		if err != nil {
			return nil
		}
		defer c.disk.close(fd)
		return visit(name, fd)
	})
}

// file is one file of a cache, as listed in its directory.
type file struct {
	key    key
	name   string
	folder int // open during the visit
	sums   bool
	blocks int64 // bytes on the disk
	size   int64
	used   time.Time // mtime
}

// files calls visit for each file of objects, folder by folder, and stops at the first error. It
// skips files with other names, and files that have vanished.
func (c *directory) files(visit func(file) error) error {
	return c.folders(func(folder string, fd int) error {
		return c.disk.names(fd, func(name string) error {
			stem, ending, _ := strings.Cut(name, ".")
			k, ok := parseName(stem)
			if !ok || ending != "data" && ending != "sums" || k.folder() != folder {
				return nil
			}
			st, err := c.disk.statAt(fd, name)
			if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
				return nil
			}
			return visit(file{k, name, fd, ending == "sums", st.Blocks * 512, st.Size, time.Unix(st.Mtim.Unix())})
		})
	})
}

// found is an object in a directory: its two files, or one of them.
type found struct {
	key    key
	blocks int64
	used   time.Time
	sums   bool // the .sums file exists, so the header can be read
}

// objects returns the objects in a directory, least recently used first.
func (c *directory) objects() ([]found, error) {
	by := map[key]*found{}
	err := c.files(func(f file) error {
		o := by[f.key]
		if o == nil {
			o = &found{key: f.key}
			by[f.key] = o
		}
		o.blocks += f.blocks
		if f.sums {
			o.sums, o.used = true, f.used
		} else if !o.sums {
			o.used = f.used
		}
		return nil
	})
	all := make([]found, 0, len(by))
	for _, o := range by {
		all = append(all, *o)
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		return cmp.Or(a.used.Compare(b.used), slices.Compare(a.key[:], b.key[:])) < 0
	})
	return all, err
}

// remove removes an object. It returns false if a process has it open.
func (c *directory) remove(k key) (bool, error) {
	folder, err := c.subdirectory(c.store, k.folder(), false)
	if err == unix.ENOENT {
		return true, nil
	} else if err != nil {
		return false, err
	}
	defer c.disk.close(folder)
	if err := c.lockFolder(folder); err != nil {
		return false, nil
	}
	sums, err := c.disk.open(folder, k.name()+".sums", unix.O_RDONLY|unix.O_NONBLOCK)
	if err == nil {
		defer c.disk.close(sums)
		if c.disk.lock(sums, unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
			return false, nil
		}
	}
	if err := c.removeBoth(folder, k.name()); err != errAbsent {
		return false, err
	}
	return true, nil
}

// inUse reports whether a process has an object open; false if that can't be found out.
func (c *directory) inUse(k key) bool {
	folder, err := c.subdirectory(c.store, k.folder(), false)
	if err != nil {
		return false
	}
	defer c.disk.close(folder)
	if c.lockFolder(folder) != nil {
		return true
	}
	sums, err := c.disk.open(folder, k.name()+".sums", unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false
	}
	defer c.disk.close(sums)
	return c.disk.lock(sums, unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}
