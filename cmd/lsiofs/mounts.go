package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fuseType is the file system type that a mount of lsiofs shows.
const fuseType = "fuse.lsiofs"

// mountEntry is one line of /proc/self/mountinfo.
type mountEntry struct {
	Point, Type, Source string
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)): the mount point is field
// 5, type and source follow a lone "-".
func parseMounts(r io.Reader) ([]mountEntry, error) {
	var mounts []mountEntry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, f := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(f) < 2 {
			continue
		}
		mounts = append(mounts, mountEntry{Point: unescapeMount(l[4]), Type: f[0], Source: unescapeMount(f[1])})
	}
	return mounts, lines.Err()
}

// unescapeMount undoes the kernel's \040 and the like.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			var c byte
			if _, err := fmt.Sscanf(s[i+1:i+4], "%03o", &c); err == nil {
				b.WriteByte(c)
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func readMounts() ([]mountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMounts(f)
}

// mountAt finds the topmost mount at point.
func mountAt(mounts []mountEntry, point string) (mountEntry, bool) {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].Point == point {
			return mounts[i], true
		}
	}
	return mountEntry{}, false
}

// resolvePoint makes a mount point absolute and free of links without looking
// at the point itself: behind a dead server even lstat fails.
func resolvePoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", err
	}
	point := filepath.Join(dir, filepath.Base(abs))
	if target, err := os.Readlink(point); err == nil {
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		return resolvePoint(target)
	}
	return point, nil
}

// checkMountPoint refuses early, before a dataset is indexed for nothing, what
// a mount would refuse late.
func checkMountPoint(path, dataset string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", codedf(exitMount, "mount point %s does not exist: create it first (mkdir -p %s)", path, shellQuote(path))
	case errors.Is(err, unix.ENOTCONN):
		// A killed server's: the mount heals it.
	case err != nil:
		return "", codedf(exitMount, "mount point: %w", err)
	case !info.IsDir():
		return "", codedf(exitMount, "mount point %s is not a directory", path)
	}
	stale := err != nil
	point, err := resolvePoint(path)
	if err != nil {
		return "", codedf(exitMount, "mount point: %w", err)
	}
	mounts, err := readMounts()
	if err != nil {
		return "", codedf(exitMount, "mount point %s: %w", path, err)
	}
	if m, ok := mountAt(mounts, point); ok && !stale {
		hint := "choose another directory"
		if m.Type == fuseType {
			hint = "unmount it first (lsiofs umount " + shellQuote(path) + ")"
		}
		return "", codedf(exitMount, "mount point %s is a mount already (%s): %s", path, m.Type, hint)
	}
	if err := checkApart(path, point, dataset); err != nil || stale {
		return point, err
	}
	names, err := firstName(point)
	switch {
	case err != nil:
		return "", codedf(exitMount, "mount point: %w", err)
	case len(names) > 0:
		return "", codedf(exitMount, "mount point %s is not empty (it has %q): choose an empty directory", path, names[0])
	}
	return point, nil
}

// checkApart refuses a mount point inside of the dataset, which would then hold
// itself, and one that would hide the dataset.
func checkApart(path, point, dataset string) error {
	root, recursive, err := datasetRoot(dataset)
	switch {
	case err != nil:
		return codedf(exitDataset, "dataset %s: %w", dataset, err)
	case recursive && inside(point, root):
		return codedf(exitMount, "mount point %s lies inside the dataset %s: choose a directory outside of it", path, root)
	case inside(root, point):
		return codedf(exitMount, "the dataset %s lies inside the mount point %s, which would hide it: choose another directory", root, path)
	}
	return nil
}

func firstName(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// shellQuote writes s so that a shell takes it as one word.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:=,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
