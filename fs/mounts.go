package fs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
)

// fsName is the source shown in /proc/mounts; FileSystemType is the type.
const (
	fsName         = "lsiofs"
	FileSystemType = "fuse." + fsName
)

// MountEntry is one mount that this process sees.
type MountEntry struct {
	ID                  int
	Device              string // major:minor, as shown by stat
	Point, Type, Source string
	// User is the user who made a FUSE mount; -1 for other mounts.
	User int
}

// Mounts lists the mounts in the order in which they were made. It reads a table of the kernel and
// does not touch any mount, so dead mounts do not block it.
func Mounts() ([]MountEntry, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("can't read the list of mounts: %w", err)
	}
	defer f.Close()
	return parseMounts(f)
}

// TopMount finds the topmost mount at point, an absolute path without symbolic links.
func TopMount(mounts []MountEntry, point string) (MountEntry, bool) {
	for i := len(mounts) - 1; i >= 0; i-- {
		if mounts[i].Point == point {
			return mounts[i], true
		}
	}
	return MountEntry{}, false
}

// mountAt returns the mount that is topmost at path now.
func mountAt(path string) (MountEntry, bool, error) {
	mounts, err := Mounts()
	if err != nil {
		return MountEntry{}, false, err
	}
	m, ok := TopMount(mounts, path)
	return m, ok, nil
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)): the mount point is field 5; type, source and
// options of the file system follow a lone "-".
func parseMounts(r io.Reader) ([]MountEntry, error) {
	var mounts []MountEntry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, f := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(f) < 2 {
			continue
		}
		id, err := strconv.Atoi(l[0])
		if err != nil {
			continue
		}
		mounts = append(mounts, MountEntry{ID: id, Device: l[2], Point: filesystem.UnescapeMount(l[4]), Type: f[0], Source: filesystem.UnescapeMount(f[1]), User: userOf(f[2:])})
	}
	return mounts, lines.Err()
}

// userOf finds the user who made a mount in the options of its file system.
func userOf(options []string) int {
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			if id, ok := strings.CutPrefix(option, "user_id="); ok {
				if n, err := strconv.Atoi(id); err == nil {
					return n
				}
			}
		}
	}
	return -1
}

// ResolvePoint makes a mount point absolute and free of symbolic links. It does not touch what is
// mounted there: with a dead server even lstat fails.
func ResolvePoint(point string) (string, error) { return resolvePoint(point, 0) }

// linksMax is how many links to links are followed, the same as in the kernel.
const linksMax = 40

func resolvePoint(point string, links int) (string, error) {
	abs, err := filepath.Abs(point)
	if err != nil {
		return "", fmt.Errorf("mount point %s: %w", point, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", fmt.Errorf("mount point %s: %w", point, err)
	}
	path := filepath.Join(dir, filepath.Base(abs))
	target, err := os.Readlink(path)
	if err != nil || links == linksMax {
		return path, nil
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(dir, target)
	}
	return resolvePoint(target, links+1)
}

// Unreachable returns the error to show if opening a file of the mount at point failed with err:
// there may be no mount, a dead one, or one of another user, whose files only that user can read.
func Unreachable(point string, err error) error {
	switch {
	case errors.Is(err, unix.ENOTCONN):
		return fmt.Errorf("the server of %s is gone: mount again, which repairs the mount point, or remove it with lsiofs umount %s", point, point)
	case errors.Is(err, os.ErrPermission):
		if m, found := MountOf(point); found && m.User >= 0 && m.User != os.Geteuid() {
			return fmt.Errorf("%s is a mount of user %s, which other users can't read (%w): run the command as that user, or mount with --allow-other", point, m.Owner(), unix.EACCES)
		}
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Lstat(point); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is not a mount of lsiofs: there is no such directory; name the one that lsiofs mount was given", point)
		}
		return fmt.Errorf("%s is not a mount of lsiofs: nothing is mounted there; name the directory that lsiofs mount was given", point)
	}
	return fmt.Errorf("mount %s: %w", point, err)
}

// MountOf returns the mount of lsiofs at point, without touching it.
func MountOf(point string) (MountEntry, bool) {
	path, err := ResolvePoint(point)
	if err != nil {
		return MountEntry{}, false
	}
	m, mounted, err := mountAt(path)
	return m, err == nil && mounted && m.Type == FileSystemType
}

// Owner is the name of the user who made the mount, or the number if there is no name.
func (m MountEntry) Owner() string {
	number := strconv.Itoa(m.User)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
