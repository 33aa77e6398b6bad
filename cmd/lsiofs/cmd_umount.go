package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
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

func runUmount(ctx context.Context, o *umountOptions, u *terminal.UI) error {
	point, err := fs.ResolvePoint(o.point)
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
		return exit.Errorf(exit.Mount, "%s is not a mount point", o.point)
	case m.Type != fs.FileSystemType:
		return exit.Errorf(exit.Mount, "%s is a mount of type %s, not of lsiofs: use umount", o.point, m.Type)
	}
	if err := unmount(ctx, point, o.lazy); err != nil {
		if !errors.Is(err, unix.EBUSY) {
			return exit.Errorf(exit.Mount, "unmount %s: %w", o.point, err)
		}
		return exit.Errorf(exit.Mount, "%s is busy%s; close these, or detach it with lsiofs umount --lazy %s",
			o.point, holdersText(holders("/proc", point, os.Getpid(), os.ReadDir)), terminal.Quote(o.point))
	}
	if u.JSON {
		return u.Emit(map[string]string{"unmounted": point})
	}
	u.Notef("unmounted %s", o.point)
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

// mapsPatience is how long it may take to look at what processes have mapped. The
// kernel makes that wait for a process that hangs: for one, say, that waits for a
// page of a file system which does not answer.
const mapsPatience = 3 * time.Second

// holders looks through a proc file system for processes that have a file or a
// directory below point open, or mapped. Processes of others show nothing; but is
// left out (it is this one, with what its parent has left open to it). Mappings
// that can't be looked at within mapsPatience are not; list is os.ReadDir.
func holders(proc, point string, but int, list func(dir string) ([]os.DirEntry, error)) []holder {
	dirs, err := list(proc)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), mapsPatience)
	defer cancel()
	var found []holder
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == but {
			continue
		}
		dir := filepath.Join(proc, d.Name())
		linksOf := func(sub string) (links []string) {
			entries, _ := list(filepath.Join(dir, sub))
			for _, e := range entries {
				links = append(links, filepath.Join(dir, sub, e.Name()))
			}
			return links
		}
		uses := targetBelow(point, append(linksOf("fd"), filepath.Join(dir, "cwd"), filepath.Join(dir, "root")))
		if uses == "" && ctx.Err() == nil {
			mapped := make(chan string, 1)
			go func() { mapped <- targetBelow(point, linksOf("map_files")) }() // ends with this process at the latest
			select {
			case uses = <-mapped:
			case <-ctx.Done():
			}
		}
		if uses != "" {
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

// targetBelow is where the first of links leads that leads to point or below it, ""
// where none does.
func targetBelow(point string, links []string) string {
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && inside(target, point) {
			return target
		}
	}
	return ""
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
