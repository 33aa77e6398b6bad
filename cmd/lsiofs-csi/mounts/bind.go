package mounts

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// hardening are the flags that every bind mount has in addition to being read-only or writable:
// streams are data.
const hardening = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// Bind shows the mount at source at target, a directory, too. It does not change the propagation:
// if the directory above is shared, the mount also appears in other namespaces.
func Bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	if err := Protect(target, readOnly); err != nil {
		return errors.Join(err, Detach(target))
	}
	return nil
}

// Protect makes the bind mount at target read-only, or writable.
func Protect(target string, readOnly bool) error {
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND | hardening)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("", target, "", flags, ""); err != nil {
		return fmt.Errorf("make the mount at %s read-only or writable: %w", target, err)
	}
	return nil
}

// stackedMax bounds how many mounts are removed from one point.
const stackedMax = 64

// Detach removes all mounts from a point, however busy they are: processes with open files there
// keep them. It is not an error if nothing is mounted there.
func Detach(point string) error {
	for range stackedMax {
		t, err := Read()
		if err != nil {
			return err
		}
		if len(t.At(point)) == 0 {
			return nil
		}
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return fmt.Errorf("unmount %s: there are more than %d mounts: unmount them with umount -l, once for each", point, stackedMax)
}
