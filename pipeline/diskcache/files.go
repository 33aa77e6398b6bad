package diskcache

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
