package fs

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

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
