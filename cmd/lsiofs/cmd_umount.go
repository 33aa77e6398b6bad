package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/fs"
)

type umountOptions struct {
	point string
	lazy  bool
}

func newUmountCommand(g *globals) *cobra.Command {
	o := &umountOptions{}
	c := &cobra.Command{
		Use:   "umount MNT",
		Short: "Unmount; where the mount is busy, say what holds it",
		Long: `Unmounts MNT, also one whose server was killed. When files are in use it fails
and names the processes; with --lazy the tree disappears at once and its server
ends when the last of them has closed its files.`,
		Example: `  lsiofs umount /mnt/train
  lsiofs umount --lazy /mnt/train`,
		Args: exactArgs("MNT"),
		RunE: func(c *cobra.Command, args []string) error {
			o.point = args[0]
			return runUmount(c.Context(), o, g.ui)
		},
	}
	c.Flags().BoolVar(&o.lazy, "lazy", false, "detach now, finish when nothing uses it any more")
	return c
}

func runUmount(ctx context.Context, o *umountOptions, u *ui) error {
	point, err := fs.ResolvePoint(o.point)
	if err != nil {
		return coded(exitMount, err)
	}
	mounts, err := fs.Mounts()
	if err != nil {
		return coded(exitMount, err)
	}
	m, ok := fs.TopMount(mounts, point)
	switch {
	case !ok:
		return codedf(exitMount, "%s is not a mount point", o.point)
	case m.Type != fs.FileSystemType:
		return codedf(exitMount, "%s is a mount of type %s, not of lsiofs: use umount", o.point, m.Type)
	}
	if err := unmount(ctx, point, o.lazy); err != nil {
		if !errors.Is(err, unix.EBUSY) {
			return codedf(exitMount, "unmount %s: %w", o.point, err)
		}
		return codedf(exitMount, "%s is busy%s; close these, or detach it with lsiofs umount --lazy %s",
			o.point, holdersText(holders("/proc", point, os.Getpid())), shellQuote(o.point))
	}
	if u.json {
		return u.emit(map[string]string{"unmounted": point})
	}
	u.notef("unmounted %s", o.point)
	return nil
}

// unmount asks the kernel, and where that is not permitted fusermount3, which
// may for its user's own mounts. A busy mount is EBUSY either way.
func unmount(ctx context.Context, point string, lazy bool) error {
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

// holder is a process that uses a mount.
type holder struct {
	PID  int
	Name string
	Uses string // one of the paths
}

// maxHolders bounds what is looked for and printed.
const maxHolders = 8

// holders looks through a proc file system for processes that have a file or a
// directory below point open, or mapped. Processes of others show nothing; but is
// left out (it is this one, with what its parent has left open to it).
func holders(proc, point string, but int) []holder {
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	var found []holder
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == but {
			continue
		}
		dir := filepath.Join(proc, d.Name())
		if uses := usedBelow(dir, point); uses != "" {
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // "" for one that is gone
			found = append(found, holder{pid, strings.TrimSpace(string(name)), uses})
		}
		if len(found) == maxHolders {
			break
		}
	}
	return found
}

// inside says whether path is dir or lies below it. Both are absolute and clean.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func usedBelow(dir, point string) string {
	links := []string{filepath.Join(dir, "cwd"), filepath.Join(dir, "root")}
	for _, sub := range []string{"fd", "map_files"} {
		entries, _ := os.ReadDir(filepath.Join(dir, sub))
		for _, e := range entries {
			links = append(links, filepath.Join(dir, sub, e.Name()))
		}
	}
	i := slices.IndexFunc(links, func(l string) bool {
		target, err := os.Readlink(l)
		return err == nil && inside(target, point)
	})
	if i < 0 {
		return ""
	}
	target, _ := os.Readlink(links[i]) // it was there a moment ago
	return target
}

func holdersText(held []holder) string {
	if len(held) == 0 {
		return " (by processes that can't be seen from here)"
	}
	parts := make([]string, len(held))
	for i, h := range held {
		parts[i] = fmt.Sprintf("%s (process %d) uses %s", h.Name, h.PID, h.Uses)
	}
	if len(held) == maxHolders {
		parts = append(parts, "and perhaps more")
	}
	return ": " + strings.Join(parts, ", ")
}
