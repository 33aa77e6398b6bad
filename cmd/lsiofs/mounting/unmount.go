package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/fs"
)

// UnmountOptions say what is unmounted; Lazy detaches it and lets its readers finish.
type UnmountOptions struct {
	Point string
	Lazy  bool
}

// Unmount unmounts a mount of lsiofs, and says which processes keep a busy one.
func Unmount(ctx context.Context, o UnmountOptions, u *terminal.UI) error {
	point, err := fs.ResolvePoint(o.Point)
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	mounts, err := fs.Mounts()
	if err != nil {
		return exit.With(exit.Mount, err)
	}
	m, ok := fs.TopMount(mounts, point)
	switch {
	case !ok:
		return exit.Errorf(exit.Mount, "%s is not a mount point", o.Point)
	case m.Type != fs.FileSystemType:
		return exit.Errorf(exit.Mount, "%s is a mount of type %s, not of lsiofs: use umount", o.Point, m.Type)
	}
	if err := UnmountPoint(ctx, point, o.Lazy); err != nil {
		if !errors.Is(err, unix.EBUSY) {
			return exit.Errorf(exit.Mount, "unmount %s: %w", o.Point, err)
		}
		return exit.Errorf(exit.Mount, "%s is busy%s; close these, or detach it with lsiofs umount --lazy %s",
			o.Point, holdersText(holders("/proc", point, os.Getpid(), os.ReadDir)), terminal.Quote(o.Point))
	}
	if u.JSON {
		return u.Emit(map[string]string{"unmounted": point})
	}
	u.Notef("unmounted %s", o.Point)
	return nil
}

// UnmountPoint asks the kernel, and where that is not permitted fusermount3, which
// may for its user's own mounts. A busy mount is EBUSY either way.
func UnmountPoint(ctx context.Context, point string, lazy bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	args := []string{"-u"}
	if lazy {
		flags |= unix.MNT_DETACH
		args = append(args, "-z")
	}
	err := unix.Unmount(point, flags)
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	output, err := exec.CommandContext(ctx, "fusermount3", append(args, "--", point)...).CombinedOutput()
	text := strings.TrimSpace(string(output))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: install fuse3, or be root", err)
	case strings.Contains(text, "busy"): // it gives no other sign
		return unix.EBUSY
	}
	return errors.New(text)
}
