package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// PreparePoint checks that point can be mounted on, and returns its absolute path without symbolic
// links. It removes a mount that a killed server has left there. datasets is the dataset, or the
// sources of a mixture.
func PreparePoint(ctx context.Context, point string, datasets []string, log *slog.Logger) (string, error) {
	// A stopped server would block all that follows.
	if err := Answers(ctx, point); err != nil {
		return "", fmt.Errorf("mount point %s: %w", point, err)
	}
	path, err := ResolvePoint(point)
	if err != nil {
		return "", err
	}
	if err := healPoint(path, log); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("mount point %s does not exist: create it first (mkdir -p %s)", path, path)
	case err != nil:
		return "", fmt.Errorf("mount point %s: %w", path, err)
	case !info.IsDir():
		return "", fmt.Errorf("mount point %s is not a directory: name an empty directory", path)
	}
	for _, dataset := range datasets {
		if err := apart(path, dataset); err != nil {
			return "", err
		}
	}
	d, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("mount point %s: %w", path, err)
	}
	defer d.Close()
	if names, err := d.Readdirnames(1); len(names) > 0 {
		return "", fmt.Errorf("mount point %s is not empty (it has %q): name an empty directory", path, names[0])
	} else if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("mount point %s: %w", path, err)
	}
	return path, nil
}

// stackedMax bounds how many dead mounts are removed from one point.
const stackedMax = 8

// healPoint removes dead mounts of lsiofs from path and refuses live ones.
func healPoint(path string, log *slog.Logger) error {
	for range stackedMax {
		m, mounted, err := mountAt(path)
		if err != nil || !mounted {
			return err
		}
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); !isDead(err) {
			if m.Type != FileSystemType {
				return fmt.Errorf("mount point %s is in use: a file system of type %s is mounted there; name an empty directory", path, m.Type)
			}
			return fmt.Errorf("mount point %s is already a mount of lsiofs: unmount it first (lsiofs umount %s), or name another directory", path, path)
		}
		if m.Type != FileSystemType {
			return fmt.Errorf("mount point %s is in use: a file system of type %s is mounted there, and its server has ended; unmount it first (umount -l %s)", path, m.Type, path)
		}
		log.Warn("removing the dead mount of a killed lsiofs", "mount_point", path)
		if err := detach(path); err != nil {
			return fmt.Errorf("mount point %s holds the dead mount of a killed lsiofs, and removing it failed: %w: try lsiofs umount --lazy %s as the user who made it, or as root", path, err, path)
		}
	}
	return fmt.Errorf("mount point %s holds more than %d dead mounts of killed servers: unmount them first (umount -l %s, once for each)", path, stackedMax, path)
}

// datasetsOf returns the datasets in a spec: one, or the sources of a mixture.
func datasetsOf(s spec.Spec) []string {
	if !s.Mix.Asked() {
		return []string{s.Dataset}
	}
	list := make([]string, len(s.Mix.Sources))
	for i, x := range s.Mix.Sources {
		list[i] = x.Dataset
	}
	return list
}

// apart refuses a point inside the dataset, which would then contain itself, and one that contains
// the dataset, which would hide it.
func apart(point, dataset string) error {
	if pipeline.IsRemote(dataset) {
		return nil
	}
	root, recursive, err := datasetRoot(dataset)
	if err != nil {
		return err
	}
	switch {
	case recursive && point == root:
		return fmt.Errorf("mount point %s is the dataset itself: name an empty directory outside of it", point)
	case recursive && within(point, root):
		return fmt.Errorf("mount point %s is inside the dataset %s: name a directory outside", point, root)
	case within(root, point):
		return fmt.Errorf("mount point %s would hide the dataset %s, which is inside of it: name a directory outside", point, root)
	}
	return nil
}

// datasetRoot returns the directory that a dataset is in, without symbolic links, and whether
// directories below it belong to the dataset, too.
func datasetRoot(dataset string) (root string, recursive bool, err error) {
	root, err = filepath.Abs(dataset)
	if err != nil {
		return "", false, fmt.Errorf("dataset %s: %w", dataset, err)
	}
	info, err := os.Stat(root)
	switch {
	case err == nil && info.IsDir():
		recursive = true
	case err == nil:
		root = filepath.Dir(root)
	default:
		recursive = strings.Contains(root, "**")
		for strings.ContainsAny(root, `*?[{`) {
			root = filepath.Dir(root)
		}
	}
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved
	}
	return root, recursive, nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// detach removes the mount at path from the tree of names; it ends when its last file is closed.
func detach(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	helper, lookErr := fusermount()
	if lookErr != nil {
		return lookErr
	}
	out, err := exec.Command(helper, "-u", "-z", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s -u -z %s: %w: %s", helper, path, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// MayMount returns why this process can't mount at point, a directory returned by PreparePoint, as
// far as that is known without trying. It only queries the kernel.
func MayMount(point string, allowOther bool) error {
	if err := checkDevice(allowOther); err != nil {
		return err
	}
	switch root := os.Geteuid() == 0; {
	case root && !mayCallMount():
		return fmt.Errorf("mount point %s: this process has no right to mount (CAP_SYS_ADMIN): %s", point, containerAdvice)
	case !root && !isOwn(point):
		return fmt.Errorf("mount point %s: this user may not mount there: users other than root need a writable directory that they own; name another one, or have root give you this one (sudo chown %d %s)",
			point, os.Geteuid(), point)
	}
	return nil
}

// containerAdvice is for root in a container that may not mount.
const containerAdvice = "this container may not mount; run it with --cap-add SYS_ADMIN --device /dev/fuse (and, where AppArmor forbids it, --security-opt apparmor=unconfined)"

// isOwn reports whether fusermount3 lets this user mount at a directory.
func isOwn(point string) bool {
	var st unix.Stat_t
	return unix.Stat(point, &st) == nil && unix.Access(point, unix.W_OK) == nil && (st.Mode&unix.S_ISVTX == 0 || int(st.Uid) == os.Geteuid())
}

// mayCallMount reports whether the process has CAP_SYS_ADMIN.
func mayCallMount() bool {
	var sets [2]unix.CapUserData // each holds 32 capabilities
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])
	return err != nil || sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0 // otherwise the mount itself fails with a reason
}

// checkDevice explains why nothing can be mounted here.
func checkDevice(allowOther bool) error {
	const device = "/dev/fuse"
	info, err := os.Stat(device)
	if err != nil {
		return fmt.Errorf("%s is missing: load the kernel's module (modprobe fuse); in a container, run it with --device %s", device, device)
	}
	if os.Geteuid() == 0 {
		return nil
	}
	if _, err := fusermount(); err != nil {
		return err
	}
	if unix.Access(device, unix.R_OK|unix.W_OK) != nil {
		return fmt.Errorf("%s is not accessible to this user (mode %04o): make it 0666 (sudo chmod 0666 %s), or mount as root", device, info.Mode().Perm(), device)
	}
	if allowOther && !userAllowOther() {
		return errors.New("--allow-other needs the line user_allow_other in /etc/fuse.conf, which root can add, or a mount as root")
	}
	return nil
}

func userAllowOther() bool {
	conf, err := os.ReadFile("/etc/fuse.conf")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(conf)) {
		if strings.TrimSpace(line) == "user_allow_other" {
			return true
		}
	}
	return false
}
