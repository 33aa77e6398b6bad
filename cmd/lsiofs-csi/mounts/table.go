package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FileSystem is the type of lsiofs' mounts.
const FileSystem = "fuse.lsiofs"

// Mount is a mount visible to this process.
type Mount struct {
	Point    string // absolute
	Device   string // major:minor
	Type     string
	ReadOnly bool // of this mount, whatever the file system is
}

// Table lists all mounts in the order of their creation.
type Table []Mount

// Read reads the kernel's mount table.
func Read() (Table, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("can't read the list of mounts: %w", err)
	}
	defer f.Close()
	return parse(f)
}

// parse parses mountinfo (proc_pid_mountinfo(5)): number, parent, device, root, point, options,
// tags up to a lone "-", type.
func parse(r io.Reader) (t Table, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		l, f := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(f) < 1 {
			continue
		}
		m := Mount{Device: l[2], Point: unescape(l[4]), Type: f[0]}
		for option := range strings.SplitSeq(l[5], ",") {
			m.ReadOnly = m.ReadOnly || option == "ro"
		}
		t = append(t, m)
	}
	return t, lines.Err()
}

// unescape decodes octal escapes such as \040, which the kernel writes for blanks, tabs, newlines
// and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return '0' <= c && c <= '7' }

// At returns the mounts at a point, the topmost last.
func (t Table) At(point string) (found []Mount) {
	for _, m := range t {
		if m.Point == point {
			found = append(found, m)
		}
	}
	return found
}

// Below returns the points of lsiofs' mounts at or below a directory, the latest first.
func (t Table) Below(dir string) (points []string) {
	for i := len(t) - 1; i >= 0; i-- {
		if m := t[i]; m.Type == FileSystem && (m.Point == dir || strings.HasPrefix(m.Point, dir+"/")) {
			points = append(points, m.Point)
		}
	}
	return points
}

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
